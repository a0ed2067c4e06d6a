;; The floor: a filter that makes the host calls of a decision, with values as long as Weir's, and
;; decides nothing. It reads a header and the clock, gets a page of shared data, adds one to a number
;; in it, sets it by compare-and-set, and sets response headers, unless it has a configuration.
(module
  (import "env" "proxy_get_current_time_nanoseconds" (func $now (param i32) (result i32)))
  (import "env" "proxy_get_header_map_value" (func $header (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_replace_header_map_value" (func $replace (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_get_shared_data" (func $get (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_set_shared_data" (func $set (param i32 i32 i32 i32 i32) (result i32)))

  (memory (export "memory") 2)
  ;; 0: where the host puts the address of a value, 4: its length, 8: its cas, 16: the time
  (global $value i32 (i32.const 0x10000)) ;; values from the host
  (global $bare (mut i32) (i32.const 0))  ;; whether there are no response headers
  (data (i32.const 32) "x-user")
  (data (i32.const 48) "weir:bench:page")
  (data (i32.const 64) "ratelimit-policy" "\"per-user\";q=1000000;w=60") ;; 16, 25
  (data (i32.const 128) "ratelimit" "\"per-user\";r=999399;t=1")       ;; 9, 23
  (data (i32.const 192) "x-ratelimit-limit" "1000000")                  ;; 17, 7
  (data (i32.const 256) "x-ratelimit-remaining" "999399")               ;; 21, 6
  (data (i32.const 320) "x-ratelimit-reset" "40")                       ;; 17, 2

  (func (export "_initialize"))
  (func (export "proxy_abi_version_0_2_1"))
  (func (export "proxy_on_memory_allocate") (param i32) (result i32) (global.get $value))
  (func (export "proxy_on_context_create") (param i32 i32))
  (func (export "proxy_on_vm_start") (param i32 i32) (result i32) (i32.const 1))
  (func (export "proxy_on_configure") (param $root i32) (param $length i32) (result i32)
    (global.set $bare (local.get $length))
    (i32.const 1))
  (func (export "proxy_on_done") (param i32) (result i32) (i32.const 1))

  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (drop (call $header (i32.const 0) (i32.const 32) (i32.const 6) (i32.const 0) (i32.const 4)))
    (drop (call $now (i32.const 16)))
    (loop $again
      (if (call $get (i32.const 48) (i32.const 15) (i32.const 0) (i32.const 4) (i32.const 8))
        ;; The first one to ask makes the page, of 41 bytes.
        (then
          (i32.store (i32.const 4) (i32.const 41))
          (i32.store (i32.const 8) (i32.const 0))))
      (i64.store offset=8 (global.get $value) (i64.add (i64.load offset=8 (global.get $value)) (i64.const 1)))
      (br_if $again (call $set (i32.const 48) (i32.const 15)
        (global.get $value) (i32.load (i32.const 4)) (i32.load (i32.const 8)))))
    (i32.const 0))

  (func $respond (param $name i32) (param $nameLength i32) (param $valueLength i32)
    (drop (call $replace (i32.const 2) (local.get $name) (local.get $nameLength)
      (i32.add (local.get $name) (local.get $nameLength)) (local.get $valueLength))))

  (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
    (if (i32.eqz (global.get $bare))
      (then
        (call $respond (i32.const 64) (i32.const 16) (i32.const 25))
        (call $respond (i32.const 128) (i32.const 9) (i32.const 23))
        (call $respond (i32.const 192) (i32.const 17) (i32.const 7))
        (call $respond (i32.const 256) (i32.const 21) (i32.const 6))
        (call $respond (i32.const 320) (i32.const 17) (i32.const 2))))
    (i32.const 0))
)
