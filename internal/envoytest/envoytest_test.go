package envoytest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/internal/must"
)

// A process reads listeners from its files, refuses bad listeners and keeps its previous listeners,
// and uses the clock that it was given.
func TestEnvoy(t *testing.T) {
	t.Parallel()
	binaries := must.Get(Binaries())(t)
	for _, binary := range binaries {
		t.Run(binary.Version, func(t *testing.T) {
			t.Parallel()
			clock := must.Get(NewClock(t.TempDir()))(t)
			t.Cleanup(func() { closes(t, clock) })
			monday := time.Date(2026, 1, 5, 12, 30, 0, 0, time.UTC)
			must.OK(t, clock.Stop(monday))
			e, files := RunFiles(t, Options{Binary: binary, Clock: clock})
			must.OK(t, files.SetListeners(t.Context(), e, []Object{hello("first")}))
			status, date := get(t, e, "first")
			must.Equal(t, status, http.StatusOK, "status")
			must.Equal(t, date, monday.Format(http.TimeFormat), "date")
			var refused *RefusedError
			err := files.SetListeners(t.Context(), e, []Object{hello("first"), {"name": "second", "address": Address("127.0.0.1", 0)}})
			if !errors.As(err, &refused) || !strings.Contains(refused.Log, "second") {
				t.Errorf("a listener without filters: got %v", err)
			}
			status, _ = get(t, e, "first")
			must.Equal(t, status, http.StatusOK, "after a refused update: status")
			must.Equal(t, must.Get(e.Stat("listener_manager.lds.update_rejected"))(t), 1, "rejected updates")
		})
	}
}

// If Envoy can't read a bootstrap, the error says so.
func TestBadBootstrap(t *testing.T) {
	t.Parallel()
	binary := must.Get(Newest())(t)
	_, err := Start(t.Context(), Options{Binary: binary, Dir: t.TempDir(), Bootstrap: []byte(`{"adm": {}}`)})
	must.Contains(t, fmt.Sprint(err), "adm", "")
}

func hello(name string) Object {
	return Listener(name, Manager(name, []Object{{"match": Object{"prefix": "/"}, "direct_response": Object{"status": 200}}}))
}

func get(t *testing.T, e *Envoy, listener string) (status int, date string) {
	t.Helper()
	listeners := must.Get(e.Listeners())(t)
	response := must.Get(http.Get("http://" + listeners[listener]))(t)
	closes(t, response.Body)
	return response.StatusCode, response.Header.Get("date")
}

func closes(t *testing.T, c io.Closer) {
	t.Helper()
	must.Report(t, c.Close())
}
