package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// released is a folder that has what images are made of.
func released(t *testing.T) (files, authorities string) {
	t.Helper()
	files = t.TempDir()
	write := func(name string, content []byte) {
		if err := os.WriteFile(filepath.Join(files, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, platform := range platforms {
		var text bytes.Buffer
		zipped := gzip.NewWriter(&text)
		w := tar.NewWriter(zipped)
		for _, name := range []string{"LICENSE", "weir"} {
			content := name + " for " + platform.Architecture
			if err := errors.Join(w.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Mode: 0o755}), ignore(io.WriteString(w, content))); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.Close(), zipped.Close()); err != nil {
			t.Fatal(err)
		}
		write("weir_linux_"+platform.Architecture+".tar.gz", text.Bytes())
	}
	write("weir.wasm", []byte("\x00asm, and so on"))
	if err := writeChart("../charts/weir", "v0.1.0", filepath.Join(files, "weir-0.1.0.tgz")); err != nil {
		t.Fatal(err)
	}
	write("authorities", []byte("authorities"))
	return files, filepath.Join(files, "authorities")
}

func ignore(_ int, err error) error { return err }

// pushed are the names of images that were pushed to a registry of this machine.
func pushed(t *testing.T, image string) (names []string) {
	t.Helper()
	files, authorities := released(t)
	var out bytes.Buffer
	if err := push(&out, files, image, "v0.1.0", authorities); err != nil {
		t.Fatal(err)
	}
	return strings.Fields(out.String())
}

func startRegistry(t *testing.T) (address string) {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func pull(t *testing.T, image string, options ...remote.Option) v1.Image {
	t.Helper()
	ref, err := name.ParseReference(image)
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Image(ref, options...)
	if err != nil {
		t.Fatal(err)
	}
	return pulled
}

// TestCommand pulls the command's image for each platform as a kubelet does.
func TestCommand(t *testing.T) {
	t.Parallel()
	at := startRegistry(t)
	pushed(t, at+"/weir")
	for _, platform := range platforms {
		image := pull(t, at+"/weir:v0.1.0", remote.WithPlatform(platform))
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if c := config.Config; c.User != nobody || !slices.Equal(c.Entrypoint, []string{"/usr/local/bin/weir"}) || config.Architecture != platform.Architecture {
			t.Errorf("%v: %+v", platform, config)
		}
		found := map[string]string{}
		unpacked := mutate.Extract(image)
		for r := tar.NewReader(unpacked); ; {
			head, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			found[head.Name] = fmt.Sprintf("%o %s%s", head.Mode, content, head.Linkname)
		}
		if err := unpacked.Close(); err != nil {
			t.Error(err)
		}
		want := map[string]string{
			"usr/local/bin/weir": "555 weir for " + platform.Architecture, "bin/weir": "777 /usr/local/bin/weir", "bin/ratelimit": "777 /usr/local/bin/weir",
			"etc/ssl/certs/ca-certificates.crt": "444 authorities",
		}
		if fmt.Sprint(found) != fmt.Sprint(want) {
			t.Errorf("%v: %v, want %v", platform, found, want)
		}
	}
}

// TestPlugin pulls both forms of the plugin by the rules that Istio's and Envoy Gateway's fetchers share.
func TestPlugin(t *testing.T) {
	t.Parallel()
	at := startRegistry(t)
	pushed(t, at+"/weir")
	for tag, read := range map[string]func(v1.Image) ([]byte, error){"v0.1.0": asCompat, "v0.1.0-wasm": asArtifact} {
		image := pull(t, at+"/weir-plugin:"+tag)
		manifest, err := image.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		if manifest.MediaType != types.OCIManifestSchema1 {
			t.Errorf("%s: a manifest of type %s", tag, manifest.MediaType)
		}
		if plugin, err := read(image); err != nil || string(plugin) != "\x00asm, and so on" {
			t.Errorf("%s: %q, %v", tag, plugin, err)
		}
		// A reader that takes a form for the other reads nothing wrong.
		for other, read := range map[string]func(v1.Image) ([]byte, error){"v0.1.0": asArtifact, "v0.1.0-wasm": asCompat} {
			if plugin, err := read(image); other == tag && err == nil {
				t.Errorf("%s is read as the other form, too: %q", tag, plugin)
			}
		}
	}
}

// asCompat takes the last layer, which has to be of OCI's media type, for a packed archive with a file plugin.wasm.
func asCompat(image v1.Image) ([]byte, error) {
	layers, err := image.Layers()
	if err != nil {
		return nil, err
	}
	if len(layers) == 0 {
		return nil, errors.New("no layers")
	}
	last := layers[len(layers)-1]
	if media, err := last.MediaType(); err != nil || media != types.OCILayer {
		return nil, fmt.Errorf("a layer of type %s: %w", media, err)
	}
	packed, err := last.Compressed()
	if err != nil {
		return nil, err
	}
	unpacked, err := gzip.NewReader(packed)
	if err != nil {
		return nil, err
	}
	for r := tar.NewReader(unpacked); ; {
		head, err := r.Next()
		if err != nil {
			return nil, err
		}
		if filepath.Base(head.Name) == "plugin.wasm" {
			return io.ReadAll(r)
		}
	}
}

// asArtifact wants two layers, and takes that of a module's media type as it is.
func asArtifact(image v1.Image) ([]byte, error) {
	layers, err := image.Layers()
	if err != nil {
		return nil, err
	}
	if len(layers) != 2 {
		return nil, fmt.Errorf("%d layers", len(layers))
	}
	for _, l := range layers {
		if media, err := l.MediaType(); err != nil || media != "application/vnd.module.wasm.content.layer.v1+wasm" {
			continue
		}
		content, err := l.Compressed()
		if err != nil {
			return nil, err
		}
		return io.ReadAll(content)
	}
	return nil, errors.New("no layer of a module")
}

// TestSameBytes makes images twice: what is the same has the same digest.
func TestSameBytes(t *testing.T) {
	t.Parallel()
	at := startRegistry(t)
	first, second := pushed(t, at+"/weir"), pushed(t, at+"/weir")
	if !slices.Equal(first, second) || len(first) != 4 {
		t.Errorf("%v, then %v", first, second)
	}
}
