package config_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"weir/config"
	"weir/internal/must"
)

// hostile returns documents of a mebibyte that are meant to be slow: each has very many of
// something.
func hostile() map[string]string {
	fill := func(head, part, tail string) string {
		return head + strings.Repeat(part, (1<<20-len(head)-len(tail))/len(part)) + tail
	}
	// The parts of a google.protobuf.Struct.
	message := func(tag byte, body string) string {
		return string(tag) + string(binary.AppendUvarint(nil, uint64(len(body)))) + body
	}
	field := func(name, value string) string { return message(0x0a, message(0x0a, name)+message(0x12, value)) }
	list := func(element string) string {
		return field("rules", message(0x32, strings.Repeat(element, (1<<20-100)/len(element))))
	}
	const rule = `{"name": "r", "limits": [{"limit": 1, "window": "1m"}], `
	const one = `{"rules": [` + rule
	twelve := func(element string) string { return strings.Repeat(element+",", 12) + element }
	return map[string]string{
		"unknown fields":                 fill(`{`, `"a":1,`, `"b":1}`),
		"unknown fields, escaped":        fill(`{`, `"\u0001":1,`, `"b":1}`),
		"unknown fields with long names": fill(`{`, `"`+strings.Repeat("é", 400)+`":1,`, `"b":1}`),
		"rules":                          fill(`{"rules": [`, `0,`, `0]}`),
		"limits":                         fill(`{"rules": [{"limits": [`, `0,`, `0]}]}`),
		"selectors":                      fill(one+`"key": [`, `"",`, `0]}]}`),
		"fields of a selector":           fill(one+`"key": [{`, `"":0,`, `"header": "x"}]}]}`),
		"fields of a selector, escaped":  fill(one+`"key": [{`, `"\u0068eade":0,`, `"header": "x"}]}]}`),
		"a selector's field again":       fill(one+`"key": [{`, `"header":0,`, `"header": "x"}]}]}`),
		"fields of a cost":               fill(one+`"cost": {`, `"":0,`, `"header": "x"}}]}`),
		"bounds of a cost":               fill(one+`"cost": {`, `"least":0,`, `"header": "x"}}]}`),
		"fields of a match":              fill(one+`"match": {"path": {`, `"":0,`, `"prefix": "/"}}}]}`),
		"headers of a match":             fill(one+`"match": {"headers": {`, `"":0,`, `"": 0}}}]}`),
		"methods":                        fill(one+`"match": {"methods": [`, `"A",`, `"A"]}}]}`),
		"fields of an exception":         fill(one+`"except": [{`, `"":0,`, `"": 0}]}]}`),
		"exceptions":                     fill(`{"rules": [`, rule+`"except": [`+twelve(`{"headers":{"a":{"exact":"b"},"b":{"exact":"b"}}}`)+`]},`, `0]}`),
		"exceptions of nothing":          fill(`{"rules": [`, rule+`"except": [`+twelve(twelve(`{"path":{}}`))+`]},`, `0]}`),
		"networks":                       fill(`{"rules": [`, rule+`"key": [`+twelve(`{"in_cidr":[`+twelve(twelve(`"::/0"`))+`]}`)+`]},`, `0]}`),
		"parts of properties":            fill(`{"rules": [`, rule+`"key": [`+twelve(`{"property":[`+twelve(`"a"`)+`]}`)+`]},`, `0]}`),
		"keys":                           fill(`{"rules": [`, rule+`"key": [`+twelve(`{"header":"x"}`)+`]},`, `0]}`),
		"headers of a response":          fill(`{"response": {"headers": {`, `"":0,`, `"": 0}}}`),
		"names of header sets":           fill(`{"headers": [`, `0,`, `0]}`),
		"a string":                       fill(`{"namespace": "`, `x`, `"}`),
		"a string of escapes":            fill(`{"namespace": "`, `\n`, `"}`),
		"a number":                       fill(`{"capacity": 1.`, `0`, `}`),
		"an exponent":                    fill(`{"capacity": 1e`, `9`, `}`),
		"a duration":                     fill(`{"backend": {"timeout": "`, `1ms`, `"}}`),
		"levels":                         fill(strings.Repeat(`{"rules":[`, 30), `0,`, `0`+strings.Repeat(`]}`, 30)),
		"spaces":                         fill(one+`"key": [{`, ` `, `"header": "x"}]}]}`),
		"struct: null":                   list("\x0a\x02\x08\x00"),
		"struct: false":                  list("\x0a\x02\x20\x00"),
		"struct: small numbers":          list("\x0a\x09\x11\x9a\x99\x99\x99\x99\x99\x10\x3f"),
		"struct: large numbers":          list("\x0a\x09\x11\x01\x00\x00\x00\x00\x00\xb0\x43"),
		"struct: control characters":     field("namespace", message(0x1a, strings.Repeat("\x01", 1<<20-100))),
		"struct: fields of a rule":       field("rules", message(0x32, message(0x0a, message(0x2a, strings.Repeat("\x0a\x06\x0a\x00\x12\x02\x08\x00", 1<<17-20))))),
	}
}

// A document that is meant to be slow takes a few times its own size. A megabyte of fields once
// took 262.
func TestHostileDocumentsTakeLittleMemory(t *testing.T) {
	const most = 24 << 20
	for name, document := range hostile() {
		must.Between(t, len(document), 1<<20-20_000, 1<<20, "%s: bytes of the document", name)
		var err error
		_, took := must.Allocated(func() { _, err = config.Parse([]byte(document)) })
		must.AtMost(t, took, most, "%s: bytes allocated", name)
		if err == nil && name != "spaces" {
			t.Errorf("%s: accepted", name)
		}
		if err != nil && len(err.Error()) > 1<<18 {
			t.Errorf("%s: errors of %d bytes", name, len(err.Error()))
		}
		t.Logf("%s: %.1f MB", name, float64(took)/1e6)
	}
}
