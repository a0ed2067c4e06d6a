package filter_test

import (
	"testing"

	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/proxytest"
	"github.com/tetratelabs/proxy-wasm-go-sdk/proxywasm/types"

	"weir/filter"
	"weir/internal/must"
)

// The SDK's emulator drives the same filter as Envoy does: the native face of package proxywasm
// forwards to it.
func TestUnderProxytest(t *testing.T) {
	emulator, reset := proxytest.NewHostEmulator(proxytest.NewEmulatorOption().
		WithVMContext(&filter.VM{}).
		WithPluginConfiguration([]byte(`{
			"rules": [{
				"name": "per-user",
				"key": [{"header": "x-user"}],
				"limits": [{"limit": 2, "window": "1h", "algorithm": "fixed_window"}]
			}]
		}`)).
		WithProperty([]string{"source", "address"}, []byte("10.0.0.1:1234")))
	defer reset()
	if status := emulator.StartPlugin(); status != types.OnPluginStartStatusOK {
		t.Fatalf("start: got %v, log %v", status, emulator.GetErrorLogs())
	}
	send := func(user string) (id uint32, action types.Action) {
		id = emulator.InitializeHttpContext()
		action = emulator.CallOnRequestHeaders(id, [][2]string{
			{":method", "GET"}, {":path", "/"}, {":authority", "shop.example"}, {"x-user", user},
		}, true)
		return id, action
	}
	for range 2 {
		id, action := send("ann")
		if action != types.ActionContinue || emulator.GetSentLocalResponse(id) != nil {
			t.Fatalf("within the limit: got %v, %v", action, emulator.GetSentLocalResponse(id))
		}
		emulator.CallOnResponseHeaders(id, [][2]string{{":status", "200"}, {"x-ratelimit-limit", "upstream's"}}, true)
		must.EqualOrEnd(t, header(emulator.GetCurrentResponseHeaders(id), "x-ratelimit-limit"), "2", "x-ratelimit-limit")
		emulator.CompleteHttpContext(id)
	}
	for range 2 { // the second time from the VM's memory
		id, action := send("ann")
		reply := emulator.GetSentLocalResponse(id)
		if action != types.ActionPause || reply == nil || reply.StatusCode != 429 || reply.GRPCStatus != 8 {
			t.Fatalf("above the limit: got %v, %+v", action, reply)
		}
		must.Equal(t, header(reply.Headers, "x-envoy-ratelimited"), "true", "x-envoy-ratelimited")
		must.Equal(t, header(reply.Headers, "x-ratelimit-remaining"), "0", "x-ratelimit-remaining")
		emulator.CompleteHttpContext(id)
	}
	if _, action := send("bob"); action != types.ActionContinue {
		t.Errorf("another key: got %v", action)
	}
	emulator.Tick()
	for outcome, want := range map[string]uint64{"allowed": 3, "rejected": 2} {
		name := "weir.weir_namespace=.=default;.;weir_rule=.=per-user;.;weir_outcome=.=" + outcome + ";.;requests_total"
		must.Equal(t, must.Get(emulator.GetCounterMetric(name))(t), want, "%s", name)
	}
}

func header(headers [][2]string, name string) string {
	for _, h := range headers {
		if h[0] == name {
			return h[1]
		}
	}
	return ""
}
