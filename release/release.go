// Command release packs the chart for make release, and pushes images of the files of a release:
//
//	release -chart charts/weir -tag v0.1.0 -files dist/staged
//	release -image registry.example/weir -tag v0.1.0 -files dist/release
//
// registry.example/weir:v0.1.0 is the command, for Linux on amd64 and arm64. registry.example/weir-plugin:v0.1.0 is the
// plugin as an image, and v0.1.0-wasm the bare plugin; Istio and Envoy Gateway read both. registry.example/weir-chart:0.1.0
// is the chart for Helm. Credentials come from ~/.docker/config.json, where docker login keeps them.
//
// It needs no Docker: images are a tar file and two JSON documents. The plugin's bare form has media types of its own for
// its configuration and its layers, which the commands of image tools can't give.
package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	files := flag.String("files", "dist/release", "the folder that make release has filled, or the folder for the chart")
	image := flag.String("image", "", "the command's name in a registry; the plugin's and the chart's append -plugin and -chart")
	chart := flag.String("chart", "", "the chart's folder, to pack and not to push")
	tag := flag.String("tag", "", "the version")
	authorities := flag.String("authorities", "/etc/ssl/certs/ca-certificates.crt", "the certificate authorities that the command trusts")
	flag.Parse()
	if (*image == "") == (*chart == "") || !version.MatchString(*tag) {
		fmt.Fprintln(os.Stderr, "release: want -image registry.example/weir or -chart, and -tag v0.1.0 (make images IMAGE=… VERSION=…)")
		os.Exit(2)
	}
	var err error
	if *chart != "" {
		err = writeChart(*chart, *tag, filepath.Join(*files, chartName(*tag)))
	} else {
		err = push(os.Stdout, *files, *image, *tag, *authorities)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

var version = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9a-z.]+)?$`)

// platforms are the platforms of the command's image.
var platforms = []v1.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}}

// push builds the images from a folder of release files, pushes them, and prints the name of each
// with its digest.
func push(out io.Writer, files, image, tag, authorities string) error {
	trusted, err := os.ReadFile(authorities)
	if err != nil {
		return err
	}
	commands := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, platform := range platforms {
		archive := filepath.Join(files, fmt.Sprintf("weir_%s_%s.tar.gz", platform.OS, platform.Architecture))
		weir, err := fromArchive(archive, "weir")
		if err != nil {
			return err
		}
		controller, err := fromArchive(archive, "weir-controller")
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		image, err := command(weir, controller, trusted, platform)
		if err != nil {
			return err
		}
		commands = mutate.AppendManifests(commands, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &platform}})
	}
	plugin, err := os.ReadFile(filepath.Join(files, "weir.wasm"))
	if err != nil {
		return err
	}
	if err := pushAs(out, image+":"+tag, commands); err != nil {
		return err
	}
	for _, form := range []struct {
		suffix string
		of     func([]byte) (v1.Image, error)
	}{{"", compat}, {"-wasm", artifact}} {
		made, err := form.of(plugin)
		if err != nil {
			return err
		}
		if err := pushAs(out, image+"-plugin:"+tag+form.suffix, made); err != nil {
			return err
		}
	}
	archive, err := os.ReadFile(filepath.Join(files, chartName(tag)))
	if err != nil {
		return err
	}
	chart, err := newChartImage(archive, tag)
	if err != nil {
		return err
	}
	return pushAs(out, image+"-chart:"+strings.TrimPrefix(tag, "v"), chart)
}

// image is a single image, or an index of some.
type image interface {
	remote.Taggable
	Digest() (v1.Hash, error)
}

func pushAs(out io.Writer, as string, image image) error {
	ref, err := name.NewTag(as)
	if err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	if err := remote.Push(ref, image, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s@%s\n", ref, digest)
	return err
}

// fromArchive reads a file from a .tar.gz.
func fromArchive(archive, wanted string) (content []byte, err error) {
	f, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", archive, err)
	}
	for r := tar.NewReader(unzipped); ; {
		head, err := r.Next()
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", archive, wanted, err)
		}
		if head.Name == wanted {
			return io.ReadAll(r)
		}
	}
}
