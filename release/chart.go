package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Media types of a chart in a registry: https://helm.sh/docs/topics/registries/.
const (
	chartConfig  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartContent types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

var (
	chartVersion = regexp.MustCompile(`(?m)^version: .*$`)
	appVersion   = regexp.MustCompile(`(?m)^appVersion: .*$`)
)

// chartName returns the name that Helm gives a chart's archive.
func chartName(tag string) string { return "weir-" + strings.TrimPrefix(tag, "v") + ".tgz" }

// pack makes the archive that Helm installs from a chart's folder, and sets its versions: Helm
// wants the chart's without a v, and images have the tag as their version. Equal input gives equal
// bytes.
func pack(chart fs.FS, tag string) ([]byte, error) {
	var packed bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(zipped)
	err = fs.WalkDir(chart, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(chart, name)
		if err != nil {
			return err
		}
		if name == "Chart.yaml" {
			if !chartVersion.Match(content) || !appVersion.Match(content) {
				return errors.New("no version, or no appVersion, in Chart.yaml")
			}
			content = chartVersion.ReplaceAllLiteral(content, []byte("version: "+strings.TrimPrefix(tag, "v")))
			content = appVersion.ReplaceAllLiteral(content, []byte("appVersion: "+tag))
		}
		head := &tar.Header{Name: path.Join("weir", name), Mode: 0o644, Size: int64(len(content)), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		if err := w.WriteHeader(head); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	if err := errors.Join(err, w.Close(), zipped.Close()); err != nil {
		return nil, fmt.Errorf("the chart: %w", err)
	}
	return packed.Bytes(), nil
}

// writeChart packs the chart of a folder into an archive.
func writeChart(chart, tag, out string) error {
	packed, err := pack(os.DirFS(chart), tag)
	if err != nil {
		return err
	}
	return os.WriteFile(out, packed, 0o644) // it is to be read by all
}

// chartImage is a chart's archive in a registry, in the form of helm push.
type chartImage struct {
	archive          v1.Layer
	config, manifest []byte
}

func newChartImage(archive []byte, tag string) (v1.Image, error) {
	metadata, err := json.Marshal(map[string]string{
		"apiVersion": "v2", "name": "weir", "type": "application", "version": strings.TrimPrefix(tag, "v"), "appVersion": tag,
	})
	if err != nil {
		return nil, err
	}
	c := &chartImage{archive: static.NewLayer(archive, chartContent), config: metadata}
	described, err := partial.Descriptor(c.archive)
	if err != nil {
		return nil, err
	}
	config := static.NewLayer(c.config, chartConfig)
	configDescribed, err := partial.Descriptor(config)
	if err != nil {
		return nil, err
	}
	c.manifest, err = json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: *configDescribed, Layers: []v1.Descriptor{*described},
	})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(c)
}

func (c *chartImage) RawConfigFile() ([]byte, error)      { return c.config, nil }
func (c *chartImage) RawManifest() ([]byte, error)        { return c.manifest, nil }
func (c *chartImage) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// LayerByDigest implements [partial.CompressedImageCore]. There is a single layer.
func (c *chartImage) LayerByDigest(v1.Hash) (partial.CompressedLayer, error) { return c.archive, nil }
