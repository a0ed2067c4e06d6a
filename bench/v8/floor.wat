;; The floor: a filter that makes the host calls that a decision of a rate limiter in shared data needs, and decides nothing.
;; It reads the clock and a header, gets a page that the header's value names, adds one to a number in it, sets it again by
;; compare-and-set, and replaces response headers, or replies, with bytes that it has from its configuration.
;;
;; Its configuration is the table below (floor.js writes it), which the host puts at $table; all numbers are 32 bits, and
;; where they are addresses, of what follows the table.
(module
  (import "env" "proxy_get_current_time_nanoseconds" (func $now (param i32) (result i32)))
  (import "env" "proxy_get_buffer_bytes" (func $buffer (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_get_header_map_value" (func $header (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_replace_header_map_value" (func $replace (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_get_shared_data" (func $get (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_set_shared_data" (func $set (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_send_local_response"
    (func $reply (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))

  (memory (export "memory") 4)
  ;; 0: where the host puts the address of a value, 4: its length, 8: its cas, 16: the time
  (global $value i32 (i32.const 0x10000)) ;; values from the host
  (global $table i32 (i32.const 0x20000))
  ;; The host is given $table for the configuration, and $value from then on.
  (global $memory (mut i32) (i32.const 0x20000))

  (func (export "_initialize"))
  (func (export "proxy_abi_version_0_2_1"))
  (func (export "proxy_on_memory_allocate") (param i32) (result i32) (global.get $memory))
  (func (export "proxy_on_context_create") (param i32 i32))
  (func (export "proxy_on_vm_start") (param i32 i32) (result i32) (i32.const 1))
  (func (export "proxy_on_configure") (param i32 i32) (result i32)
    (drop (call $buffer (i32.const 7) (i32.const 0) (i32.const 0x10000) (i32.const 0) (i32.const 4)))
    (global.set $memory (global.get $value))
    (i32.const 1))
  (func (export "proxy_on_tick") (param i32))
  (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32))
  (func (export "proxy_on_done") (param i32) (result i32) (i32.const 1))

  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (local $hash i32) (local $at i32) (local $end i32) (local $pages i32)
    ;; A header that tells whether the request matches.
    (if (i32.load offset=8 (global.get $table))
      (then (drop (call $header (i32.const 0) (i32.load offset=4 (global.get $table))
        (i32.load offset=8 (global.get $table)) (i32.const 0) (i32.const 4)))))
    ;; The header that is the key, hashed (FNV-1a).
    (if (i32.load offset=16 (global.get $table))
      (then
        (drop (call $header (i32.const 0) (i32.load offset=12 (global.get $table))
          (i32.load offset=16 (global.get $table)) (i32.const 0) (i32.const 4)))
        (local.set $hash (i32.const 0x811c9dc5))
        (local.set $at (i32.load (i32.const 0)))
        (local.set $end (i32.add (local.get $at) (i32.load (i32.const 4))))
        (block $hashed (loop $next
          (br_if $hashed (i32.ge_u (local.get $at) (local.get $end)))
          (local.set $hash (i32.mul (i32.xor (local.get $hash) (i32.load8_u (local.get $at))) (i32.const 0x01000193)))
          (local.set $at (i32.add (local.get $at) (i32.const 1)))
          (br $next)))))
    (if (i32.load (global.get $table))
      (then (drop (call $now (i32.const 16)))))
    (local.set $pages (i32.load offset=20 (global.get $table)))
    (block $taken (loop $next
      (br_if $taken (i32.eqz (local.get $pages)))
      (call $take (local.get $hash))
      (local.set $hash (i32.mul (i32.add (local.get $hash) (i32.const 1)) (i32.const 0x9e3779b1)))
      (local.set $pages (i32.sub (local.get $pages) (i32.const 1)))
      (br $next)))
    (if (i32.load offset=48 (global.get $table))
      (then
        (drop (call $reply (i32.load offset=52 (global.get $table))
          (i32.load offset=56 (global.get $table)) (i32.load offset=60 (global.get $table))
          (i32.load offset=64 (global.get $table)) (i32.load offset=68 (global.get $table))
          (i32.load offset=72 (global.get $table)) (i32.load offset=76 (global.get $table))
          (i32.const -1)))
        (return (i32.const 1))))
    (i32.const 0))

  ;; Gets the page of a hash, counts in it and, unless the configuration says otherwise, sets it.
  (func $take (param $hash i32)
    (local $number i32) (local $page i32)
    ;; The hash scaled to the number of pages ends the page's name, in three bytes.
    (local.set $number (i32.wrap_i64 (i64.shr_u
      (i64.mul (i64.extend_i32_u (local.get $hash)) (i64.load32_u offset=24 (global.get $table))) (i64.const 32))))
    (local.set $page (i32.sub
      (i32.add (i32.load offset=28 (global.get $table)) (i32.load offset=32 (global.get $table))) (i32.const 3)))
    (i32.store8 (local.get $page) (i32.shr_u (local.get $number) (i32.const 16)))
    (i32.store8 offset=1 (local.get $page) (i32.shr_u (local.get $number) (i32.const 8)))
    (i32.store8 offset=2 (local.get $page) (local.get $number))
    (loop $again
      (if (call $get (i32.load offset=28 (global.get $table)) (i32.load offset=32 (global.get $table))
            (i32.const 0) (i32.const 4) (i32.const 8))
        ;; The first one to ask makes the page.
        (then
          (i32.store (i32.const 4) (i32.load offset=80 (global.get $table)))
          (i32.store (i32.const 8) (i32.const 0))))
      (i64.store offset=8 (global.get $value) (i64.add (i64.load offset=8 (global.get $value)) (i64.const 1)))
      (if (i32.load offset=36 (global.get $table))
        (then (br_if $again (call $set
          (i32.load offset=28 (global.get $table)) (i32.load offset=32 (global.get $table))
          (global.get $value) (i32.load (i32.const 4)) (i32.load (i32.const 8))))))))

  (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
    (local $at i32) (local $left i32)
    (local.set $at (i32.load offset=44 (global.get $table)))
    (local.set $left (i32.load offset=40 (global.get $table)))
    (block $replaced (loop $next
      (br_if $replaced (i32.eqz (local.get $left)))
      (drop (call $replace (i32.const 2)
        (i32.load (local.get $at)) (i32.load offset=4 (local.get $at))
        (i32.load offset=8 (local.get $at)) (i32.load offset=12 (local.get $at))))
      (local.set $at (i32.add (local.get $at) (i32.const 16)))
      (local.set $left (i32.sub (local.get $left) (i32.const 1)))
      (br $next)))
    (i32.const 0))
)
