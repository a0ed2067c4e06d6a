package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// nobody is the user of an image's process. It owns no file in the image.
const nobody = "65532:65532"

type file struct {
	path    string
	mode    int64
	content []byte
	// link is the target of a symbolic link, or empty.
	link string
}

// layer returns a layer of an image with some files. Equal input gives equal bytes.
func layer(files ...file) (v1.Layer, error) {
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	for _, f := range files {
		head := &tar.Header{Name: f.path, Mode: f.mode, Size: int64(len(f.content)), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		if f.link != "" {
			head.Typeflag, head.Linkname = tar.TypeSymlink, f.link
		}
		if err := w.WriteHeader(head); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression))
}

// command returns an image of weir for a platform, with the certificate authorities to trust, and
// with what weir controller starts, unless a release has none. It
// has no shell, and its process is not root. Under the name /bin/ratelimit the command replaces
// Envoy's rate limit service.
func command(weir, controller, authorities []byte, platform v1.Platform) (v1.Image, error) {
	files := []file{
		{path: "etc/ssl/certs/ca-certificates.crt", mode: 0o444, content: authorities},
		{path: "usr/local/bin/weir", mode: 0o555, content: weir},
		{path: "bin/weir", mode: 0o777, link: "/usr/local/bin/weir"},
		{path: "bin/ratelimit", mode: 0o777, link: "/usr/local/bin/weir"},
	}
	if controller != nil {
		files = append(files, file{path: "usr/local/bin/weir-controller", mode: 0o555, content: controller})
	}
	content, err := layer(files...)
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(oci(), content)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = platform.OS, platform.Architecture
	config.Config = v1.Config{
		Entrypoint: []string{"/usr/local/bin/weir"}, User: nobody, WorkingDir: "/",
		Env: []string{"PATH=/usr/local/bin:/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"}, ExposedPorts: map[string]struct{}{"9180/tcp": {}},
	}
	return mutate.ConfigFile(image, config)
}

// oci returns an image without layers, with OCI's media types instead of Docker's.
func oci() v1.Image {
	return mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
}

// compat returns the plugin as an image that container tools also know: a single layer, with the
// file plugin.wasm. See https://github.com/solo-io/wasm/blob/master/spec/spec-compat.md.
func compat(plugin []byte) (v1.Image, error) {
	content, err := layer(file{path: "plugin.wasm", mode: 0o444, content: plugin})
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(oci(), content)
	if err != nil {
		return nil, err
	}
	annotated, ok := mutate.Annotations(image, map[string]string{"module.wasm.image/variant": "compat"}).(v1.Image)
	if !ok {
		return nil, fmt.Errorf("%T is no image", annotated)
	}
	return annotated, nil
}

// Media types of a plugin that is no image:
// https://github.com/solo-io/wasm/blob/master/spec/spec.md.
const (
	wasmConfig  types.MediaType = "application/vnd.module.wasm.config.v1+json"
	wasmContent types.MediaType = "application/vnd.module.wasm.content.layer.v1+wasm"
)

// runtimeConfig describes the runtime of the plugin.
const runtimeConfig = `{"type":"envoy_proxy","abiVersions":["v0-2-1"],"config":{"rootIds":["weir"]}}`

// artifact returns the bare plugin in the form for a registry. Istio and Envoy Gateway want two
// layers: the configuration, and the module itself.
func artifact(plugin []byte) (v1.Image, error) {
	image, err := mutate.AppendLayers(mutate.ConfigMediaType(oci(), wasmConfig),
		static.NewLayer([]byte(runtimeConfig), wasmConfig), static.NewLayer(plugin, wasmContent))
	if err != nil {
		return nil, fmt.Errorf("the plugin as an artifact: %w", err)
	}
	return image, nil
}
