;; A plugin for tests. The header x-do of a request chooses its action: it traps in any possible way,
;; waits, or makes a callout. The tests translate it in place of the real plugin, which takes seconds.
(module
  (import "env" "proxy_get_header_map_value" (func $header (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_replace_header_map_value" (func $replace (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_send_local_response" (func $reply (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_define_metric" (func $define (param i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_increment_metric" (func $add (param i32 i64) (result i32)))
  (import "env" "proxy_set_tick_period_milliseconds" (func $tick_period (param i32) (result i32)))
  (import "env" "proxy_set_effective_context" (func $context (param i32) (result i32)))
  (import "env" "proxy_continue_stream" (func $continue (param i32) (result i32)))
  (import "env" "proxy_get_buffer_bytes" (func $buffer (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_http_call" (func $call (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 2)
  (data (i32.const 16) "x-do")
  (data (i32.const 256) "hole")
  (data (i32.const 272) "\03\00\00\00\07\00\00\00\03\00\00\00\05\00\00\00\01\00\00\00\0a\00\00\00\01\00\00\00:method\00GET\00:path\00/\00:authority\00a\00")
  ;; 0: address and size of a value; 12: the number of a metric; 64: an empty list of headers; from 512 on: each root's metric; from 1024 on: values
  (global $waiting (mut i32) (i32.const 0)) ;; the stream that waits for a tick
  (global $stopping (mut i32) (i32.const 0)) ;; the stream that a tick answers
  (global $calling (mut i32) (i32.const 0)) ;; the stream that waits for the answer to a callout
  (global $ticks (mut i32) (i32.const 0))
  (global $holding (mut i32) (i32.const 0)) ;; the stream that holds the only place

  (func (export "_initialize"))
  (func (export "proxy_abi_version_0_2_1"))
  (func (export "proxy_on_memory_allocate") (param i32) (result i32) (i32.const 1024))
  (func (export "proxy_on_context_create") (param i32 i32))
  (func (export "proxy_on_vm_start") (param i32 i32) (result i32) (i32.const 1))
  ;; A configuration that begins with r is refused. A configuration that begins with t traps. A configuration that
  ;; begins with m is the name of a counter of its ticks.
  (func (export "proxy_on_configure") (param $root i32) (param i32) (result i32)
    (drop (call $tick_period (i32.const 20)))
    (drop (call $buffer (i32.const 7) (i32.const 0) (i32.const 64) (i32.const 0) (i32.const 4)))
    (if (i32.and (i32.eq (i32.load8_u (i32.const 1024)) (i32.const 0x6d)) (i32.lt_u (local.get $root) (i32.const 100)))
      (then
        (drop (call $define (i32.const 0) (i32.load (i32.const 0)) (i32.load (i32.const 4)) (i32.const 12)))
        (i32.store (i32.add (i32.const 512) (i32.mul (local.get $root) (i32.const 4))) (i32.load (i32.const 12)))))
    (if (i32.eq (i32.load8_u (i32.const 1024)) (i32.const 0x74)) (then (unreachable)))
    (i32.ne (i32.load8_u (i32.const 1024)) (i32.const 0x72)))
  (func (export "proxy_on_http_call_response") (param $root i32) (param i32 i32 i32 i32)
    (drop (call $context (global.get $calling)))
    (drop (call $continue (i32.const 0)))
    (drop (call $context (local.get $root))))
  (func $recurse (param i32) (result i32) (i32.add (call $recurse (i32.add (local.get 0) (i32.const 1))) (local.get 0)))
  (func (export "weir_on_request_headers") (export "proxy_on_request_headers") (param $id i32) (param i32 i32) (result i32)
    (local $what i32)
    (if (call $header (i32.const 0) (i32.const 16) (i32.const 4) (i32.const 0) (i32.const 4))
      (then (return (i32.const 0))))
    (local.set $what (i32.load8_u (i32.const 1024)))
    (if (i32.eq (local.get $what) (i32.const 0x6f)) ;; o: out of bounds, where there are zeros
      (then (return (i32.load (i32.const 0x7ffffff0)))))
    (if (i32.eq (local.get $what) (i32.const 0x68)) ;; h: makes the host read there
      (then (return (call $header (i32.const 0) (i32.const 0x7ffffff0) (i32.const 64) (i32.const 0) (i32.const 4)))))
    (if (i32.eq (local.get $what) (i32.const 0x75)) (then (unreachable))) ;; u
    (if (i32.eq (local.get $what) (i32.const 0x64)) ;; d: division by zero
      (then (return (i32.div_u (i32.const 1) (global.get $ticks)))))
    (if (i32.eq (local.get $what) (i32.const 0x72)) ;; r: endless recursion
      (then (return (call $recurse (i32.const 0)))))
    (if (i32.eq (local.get $what) (i32.const 0x67)) ;; g: endless growth
      (then
        (loop $more (br_if $more (i32.ne (memory.grow (i32.const 1024)) (i32.const -1))))
        (unreachable)))
    (if (i32.eq (local.get $what) (i32.const 0x65)) (then (call $exit (i32.const 2)))) ;; e
    (if (i32.eq (local.get $what) (i32.const 0x61)) ;; a: an answer
      (then
        (drop (call $reply (i32.const 418) (i32.const 16) (i32.const 4) (i32.const 16) (i32.const 4) (i32.const 64) (i32.const 4) (i32.const -1)))
        (return (i32.const 1))))
    (if (i32.eq (local.get $what) (i32.const 0x62)) ;; b: both an answer and a trap
      (then
        (drop (call $reply (i32.const 418) (i32.const 16) (i32.const 4) (i32.const 16) (i32.const 4) (i32.const 64) (i32.const 4) (i32.const -1)))
        (unreachable)))
    (if (i32.eq (local.get $what) (i32.const 0x63)) ;; c: waits for an answer to a callout
      (then
        (global.set $calling (local.get $id))
        (drop (call $call (i32.const 256) (i32.const 4) (i32.const 272) (i32.const 61) (i32.const 0) (i32.const 0)
          (i32.const 0) (i32.const 0) (i32.const 60000) (i32.const 8)))
        (return (i32.const 1))))
    (if (i32.eq (local.get $what) (i32.const 0x77)) ;; w: waits for the next tick
      (then
        (global.set $waiting (local.get $id))
        (return (i32.const 1))))
    (if (i32.eq (local.get $what) (i32.const 0x73)) ;; s: waits for the next tick, which answers it
      (then
        (global.set $stopping (local.get $id))
        (return (i32.const 1))))
    (if (i32.eq (local.get $what) (i32.const 0x6b)) ;; k: keeps a header for the response, and is over
      (then
        (drop (call $replace (i32.const 2) (i32.const 16) (i32.const 4) (i32.const 1024) (i32.const 4)))
        (return (i32.const 2))))
    (if (i32.eq (local.get $what) (i32.const 0x69)) ;; i: takes the place in flight, or is answered
      (then
        (if (global.get $holding)
          (then
            (drop (call $reply (i32.const 418) (i32.const 16) (i32.const 4) (i32.const 16) (i32.const 4) (i32.const 64) (i32.const 4) (i32.const -1)))
            (return (i32.const 3))))
        (global.set $holding (local.get $id))))
    (if (i32.eq (local.get $what) (i32.const 0x66)) ;; f: waits for ever
      (then (return (i32.const 1))))
    (i32.const 0))
  (func (export "proxy_on_tick") (param $root i32)
    (if (i32.lt_u (local.get $root) (i32.const 100))
      (then (drop (call $add (i32.load (i32.add (i32.const 512) (i32.mul (local.get $root) (i32.const 4)))) (i64.const 1)))))
    (if (global.get $stopping)
      (then
        (drop (call $context (global.get $stopping)))
        (drop (call $reply (i32.const 418) (i32.const 16) (i32.const 4) (i32.const 16) (i32.const 4) (i32.const 64) (i32.const 4) (i32.const -1)))
        (global.set $stopping (i32.const 0))
        (drop (call $context (local.get $root)))))
    (if (global.get $waiting)
      (then
        (drop (call $context (global.get $waiting)))
        (drop (call $continue (i32.const 0)))
        (global.set $waiting (i32.const 0))
        (drop (call $context (local.get $root))))))
  (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32) (i32.const 0))
  (func (export "proxy_on_request_trailers") (param i32 i32) (result i32) (i32.const 0))
  (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32) (i32.const 0))
  (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32) (i32.const 0))
  (func (export "proxy_on_response_trailers") (param i32 i32) (result i32) (i32.const 0))
  (func (export "proxy_on_done") (param $id i32) (result i32)
    (if (i32.eq (local.get $id) (global.get $holding)) (then (global.set $holding (i32.const 0))))
    (i32.const 1))
  (func $called (result i32) (i32.const 0))
  (table 1 funcref)
  (elem (i32.const 0) $called))
