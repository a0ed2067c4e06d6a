package main

import "unsafe"

type p = unsafe.Pointer

//go:wasmimport env proxy_log
func proxy_log(level uint32, m p, n uint32) uint32

//go:wasmimport env proxy_get_current_time_nanoseconds
func proxy_get_current_time_nanoseconds(t *uint64) uint32

//go:wasmimport env proxy_set_tick_period_milliseconds
func setTick(ms uint32) uint32

//go:wasmimport env proxy_set_effective_context
func setEffective(id uint32) uint32

//go:wasmimport env proxy_done
func proxy_done() uint32

//go:wasmimport env proxy_get_property
func proxy_get_property(k p, kn uint32, v *uint32, n *uint32) uint32

//go:wasmimport env proxy_get_header_map_value
func proxy_get_header_map_value(m uint32, k p, kn uint32, v *uint32, n *uint32) uint32

//go:wasmimport env proxy_replace_header_map_value
func proxy_replace_header_map_value(m uint32, k p, kn uint32, v p, n uint32) uint32

//go:wasmimport env proxy_remove_header_map_value
func proxy_remove_header_map_value(m uint32, k p, kn uint32) uint32

//go:wasmimport env proxy_get_header_map_pairs
func proxy_get_header_map_pairs(m uint32, v *uint32, n *uint32) uint32

//go:wasmimport env proxy_get_buffer_bytes
func proxy_get_buffer_bytes(t, start, length uint32, v *uint32, n *uint32) uint32

//go:wasmimport env proxy_set_buffer_bytes
func proxy_set_buffer_bytes(t, start, length uint32, v p, n uint32) uint32

//go:wasmimport env proxy_send_local_response
func proxy_send_local_response(status uint32, d p, dn uint32, b p, bn uint32, h p, hn uint32, grpc int32) uint32

//go:wasmimport env proxy_continue_stream
func continueStream(direction uint32) uint32

//go:wasmimport env proxy_http_call
func proxy_http_call(c p, cn uint32, h p, hn uint32, b p, bn uint32, t p, tn uint32, ms uint32, id *uint32) uint32

//go:wasmimport env proxy_get_shared_data
func proxy_get_shared_data(k p, kn uint32, v *uint32, n *uint32, cas *uint32) uint32

//go:wasmimport env proxy_set_shared_data
func proxy_set_shared_data(k p, kn uint32, v p, n uint32, cas uint32) uint32

//go:wasmimport env proxy_define_metric
func proxy_define_metric(kind uint32, k p, kn uint32, id *uint32) uint32

//go:wasmimport env proxy_increment_metric
func proxy_increment_metric(id uint32, offset int64) uint32

//go:wasmimport env proxy_record_metric
func proxy_record_metric(id uint32, value uint64) uint32

func ptr(s string) p { return p(unsafe.StringData(s)) }

func size(s string) uint32 { return uint32(len(s)) }

// text copies what the host has put into the arena.
func text(_, n uint32) string { return string(arena[:n]) }

func log(level uint32, m string) { proxy_log(level, ptr(m), size(m)) }

func get(m uint32, k string) (string, uint32) {
	var v, n uint32
	s := proxy_get_header_map_value(m, ptr(k), size(k), &v, &n)
	return text(v, n), s
}

func set(m uint32, k, v string) uint32 {
	return proxy_replace_header_map_value(m, ptr(k), size(k), ptr(v), size(v))
}

func remove(m uint32, k string) uint32 { return proxy_remove_header_map_value(m, ptr(k), size(k)) }

func pairs(m uint32) (string, uint32) {
	var v, n uint32
	s := proxy_get_header_map_pairs(m, &v, &n)
	return text(v, n), s
}

func buffer(t, start, length uint32) (string, uint32) {
	var v, n uint32
	s := proxy_get_buffer_bytes(t, start, length, &v, &n)
	return text(v, n), s
}

func setBuffer(t, start, length uint32, v string) uint32 {
	return proxy_set_buffer_bytes(t, start, length, ptr(v), size(v))
}

func reply(status uint32, details, body, headers string, grpc int32) uint32 {
	return proxy_send_local_response(status, ptr(details), size(details), ptr(body), size(body), ptr(headers),
		size(headers), grpc)
}

func httpCall(cluster, headers, body string, ms uint32) (uint32, uint32) {
	var id uint32
	s := proxy_http_call(ptr(cluster), size(cluster), ptr(headers), size(headers), ptr(body), size(body), nil, 0, ms, &id)
	return id, s
}

func sharedGet(k string) (string, uint32, uint32) {
	var v, n, cas uint32
	s := proxy_get_shared_data(ptr(k), size(k), &v, &n, &cas)
	return text(v, n), cas, s
}

func sharedSet(k, v string, cas uint32) uint32 {
	return proxy_set_shared_data(ptr(k), size(k), ptr(v), size(v), cas)
}

func property(path string) (string, uint32) {
	var v, n uint32
	s := proxy_get_property(ptr(path), size(path), &v, &n)
	return text(v, n), s
}

// count adds one to a counter.
func count(name string) {
	var id uint32
	proxy_define_metric(0, ptr(name), size(name), &id)
	proxy_increment_metric(id, 1)
}
