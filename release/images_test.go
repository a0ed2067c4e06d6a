package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"weir/internal/commandtest"
	"weir/internal/must"
)

// made and tag are of a release that make release has made. The tests take small files in its place.
var (
	made = flag.String("release", "", "`folder` of a release's files, to make images of")
	tag  = flag.String("tag", "v0.1.0", "the release's `version`")
)

// released is a folder that has what images are made of.
func released(t *testing.T) (files, authorities string) {
	t.Helper()
	if *made != "" {
		return *made, "/etc/ssl/certs/ca-certificates.crt"
	}
	files = t.TempDir()
	write := func(name string, content []byte) {
		must.OK(t, os.WriteFile(filepath.Join(files, name), content, 0o600))
	}
	for _, platform := range platforms {
		var text bytes.Buffer
		zipped := gzip.NewWriter(&text)
		w := tar.NewWriter(zipped)
		for _, name := range []string{"LICENSE", "weir", "weir-controller"} {
			content := name + " for " + platform.Architecture
			must.OK(t, errors.Join(w.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Mode: 0o755}), ignore(io.WriteString(w, content))))
		}
		must.OK(t, errors.Join(w.Close(), zipped.Close()))
		write("weir_linux_"+platform.Architecture+".tar.gz", text.Bytes())
	}
	write("weir.wasm", []byte("\x00asm, and so on"))
	must.OK(t, writeChart("../charts/weir", *tag, filepath.Join(files, chartName(*tag))))
	write("authorities", []byte("authorities"))
	return files, filepath.Join(files, "authorities")
}

func ignore(_ int, err error) error { return err }

// pushed are the names of images that were pushed to a registry of this machine.
func pushed(t *testing.T, image string) (names []string) {
	t.Helper()
	files, authorities := released(t)
	var out bytes.Buffer
	must.OK(t, push(&out, files, image, *tag, authorities))
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
	ref := must.Get(name.ParseReference(image))(t)
	return must.Get(remote.Image(ref, options...))(t)
}

// TestCommand pulls the command's image for each platform as a kubelet does. It runs the command of a real release, for this
// machine's platform, from where the image has it.
func TestCommand(t *testing.T) {
	t.Parallel()
	at := startRegistry(t)
	pushed(t, at+"/weir")
	files, authorities := released(t)
	for _, platform := range platforms {
		image := pull(t, at+"/weir:"+*tag, remote.WithPlatform(platform))
		config := must.Get(image.ConfigFile())(t)
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
			content := must.Get(io.ReadAll(r))(t)
			found[head.Name] = fmt.Sprintf("%o %x%s", head.Mode, sha256.Sum256(content), head.Linkname)
			if *made != "" && head.Name == "usr/local/bin/weir" && platform.Architecture == runtime.GOARCH {
				run(t, content)
			}
		}
		must.Report(t, unpacked.Close())
		weir := must.Get(fromArchive(filepath.Join(files, "weir_linux_"+platform.Architecture+".tar.gz"), "weir"))(t)
		controller := must.Get(fromArchive(filepath.Join(files, "weir_linux_"+platform.Architecture+".tar.gz"), "weir-controller"))(t)
		link := fmt.Sprintf("777 %x/usr/local/bin/weir", sha256.Sum256(nil))
		want := map[string]string{
			"usr/local/bin/weir": fmt.Sprintf("555 %x", sha256.Sum256(weir)), "bin/weir": link, "bin/ratelimit": link,
			"usr/local/bin/weir-controller":     fmt.Sprintf("555 %x", sha256.Sum256(controller)),
			"etc/ssl/certs/ca-certificates.crt": fmt.Sprintf("444 %x", sha256.Sum256(must.Get(os.ReadFile(authorities))(t))),
		}
		must.Equal(t, fmt.Sprint(found), fmt.Sprint(want), "%v", platform)
	}
}

// run wants the command of an image to tell the release's version.
func run(t *testing.T, weir []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "weir")
	must.OK(t, os.WriteFile(file, weir, 0o700)) // it is run
	said := commandtest.Run(t, exec.CommandContext(t.Context(), file, "version"))
	must.Equal(t, strings.HasPrefix(said, "weir "+*tag+", commit "), true, "weir version tells the release's")
	t.Logf("%s", said)
}

// TestPlugin pulls both forms of the plugin by the rules that Istio's and Envoy Gateway's fetchers share.
func TestPlugin(t *testing.T) {
	t.Parallel()
	at := startRegistry(t)
	pushed(t, at+"/weir")
	files, _ := released(t)
	want := must.Get(os.ReadFile(filepath.Join(files, "weir.wasm")))(t)
	forms := map[string]func(v1.Image) ([]byte, error){*tag: asCompat, *tag + "-wasm": asArtifact}
	for tag, form := range forms {
		image := pull(t, at+"/weir-plugin:"+tag)
		manifest := must.Get(image.Manifest())(t)
		must.Equal(t, manifest.MediaType, types.OCIManifestSchema1, "%s: a manifest of type", tag)
		must.Equal(t, bytes.Equal(must.Get(form(image))(t), want), true, "%s: the plugin is the release's", tag)
		// A reader that takes a form for the other reads nothing wrong.
		for other, form := range forms {
			if plugin, err := form(image); other != tag && err == nil {
				t.Errorf("%s is read as %s, too: %d bytes", tag, other, len(plugin))
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
	must.Same(t, first, second, "pushed")
	must.Equal(t, len(first), 4, "images")
}
