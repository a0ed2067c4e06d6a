//go:build wasip1

// Gofloor is floor.wat in stock Go, with the plugin's own binding: what the language takes for the
// same host calls. It reads floor.wat's configuration, and knows all of it but replies and headers
// that only tell whether a request matches.
package main

import (
	"encoding/binary"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"weir/internal/proxywasm"
)

// Where the configuration lies in floor.wat's memory, and its numbers that are of interest here.
const (
	table       = 0x20000
	keyHeader   = 12
	pages       = 20
	pageNames   = 24
	pageName    = 28
	headerCount = 40
	headersAt   = 44
)

func main() {}

func init() { proxywasm.SetVMContext(&vm{}) }

type vm struct{ types.DefaultVMContext }

func (*vm) NewPluginContext(uint32) types.PluginContext { return &plugin{} }

type plugin struct {
	types.DefaultPluginContext
	key       string
	pages     uint32
	pageNames uint32
	name      []byte
	headers   []header
	page      []byte
	data      proxywasm.SharedData
	stream    stream
}

type header struct {
	name  string
	value []byte
}

func (p *plugin) OnPluginStart(int) types.OnPluginStartStatus {
	c, ok := proxywasm.PluginConfiguration()
	if !ok {
		return types.OnPluginStartStatusFailed
	}
	c = append([]byte(nil), c...)
	number := func(at uint32) uint32 { return binary.LittleEndian.Uint32(c[at:]) }
	text := func(at uint32) []byte {
		length := number(at + 4)
		if length == 0 {
			return nil
		}
		start := number(at) - table
		return c[start : start+length]
	}
	p.key, p.pages, p.pageNames, p.name = string(text(keyHeader)), number(pages), number(pageNames), text(pageName)
	for i := range number(headerCount) {
		at := number(headersAt) - table + 16*i
		p.headers = append(p.headers, header{name: string(text(at)), value: text(at + 8)})
	}
	p.stream.plugin = p
	return types.OnPluginStartStatusOK
}

// NewHttpContext implements types.PluginContext. Nothing differs between streams.
func (p *plugin) NewHttpContext(uint32) types.HttpContext { return &p.stream }

type stream struct {
	types.DefaultHttpContext
	plugin *plugin
}

// OnHttpRequestHeaders implements types.HttpContext.
func (s *stream) OnHttpRequestHeaders(int, bool) types.Action {
	p := s.plugin
	key, _ := proxywasm.RequestHeader(p.key)
	hash := uint32(0x811c9dc5) // FNV-1a
	for _, b := range key {
		hash = (hash ^ uint32(b)) * 0x01000193
	}
	proxywasm.Now()
	for range p.pages {
		number := uint32(uint64(hash) * uint64(p.pageNames) >> 32)
		digits := p.name[len(p.name)-3:]
		digits[0], digits[1], digits[2] = byte(number>>16), byte(number>>8), byte(number)
		for {
			page, cas, found := p.data.Get(p.name, p.page)
			if !found {
				break
			}
			p.page = page
			binary.LittleEndian.PutUint64(page[8:], binary.LittleEndian.Uint64(page[8:])+1)
			if p.data.Set(p.name, page, cas) {
				break
			}
		}
		hash = (hash + 1) * 0x9e3779b1
	}
	return types.ActionContinue
}

// OnHttpResponseHeaders implements types.HttpContext.
func (s *stream) OnHttpResponseHeaders(int, bool) types.Action {
	for i := range s.plugin.headers {
		proxywasm.ReplaceResponseHeader(s.plugin.headers[i].name, s.plugin.headers[i].value)
	}
	return types.ActionContinue
}
