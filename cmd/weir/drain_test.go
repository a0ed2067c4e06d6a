package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"weir/internal/must"
	"weir/internal/wire"
)

// After SIGTERM weir serve first fails at /readyz and still accepts pushes. Then it completes the
// requests under way, and its log, in JSON, has their number.
func TestServeDrains(t *testing.T) {
	command, log := serveProcess(t, []string{"--log-format", "json", "--log-level", "debug", "--shutdown-delay", "2s"}, []string{"WEIR_TOKEN=s3cret"})
	type entry struct {
		Level, Msg, Address, Source string
		Status                      int
		Drained                     *int `json:"requests_drained"`
		UnderWay                    *int `json:"requests_under_way"`
		CutOff                      *int `json:"requests_cut_off"`
	}
	next := func(message string) (e entry) {
		t.Helper()
		line := must.Get(log.ReadBytes('\n'))(t)
		if err := json.Unmarshal(line, &e); err != nil || !strings.HasPrefix(e.Msg, message) {
			t.Fatalf("want %q in JSON, got %s: %v", message, line, err)
		}
		return e
	}
	address := next("the counter backend listens").Address
	body := wire.AppendPush(nil, &wire.Push{Namespace: "shop", Node: 1, Sender: 1, Sequence: 1, Floor: 1})
	wantStatus(t, "POST", "http://"+address+wire.PushPath, "wrong", body, 401)
	if e := next("requests are refused"); e.Level != "WARN" || e.Source != "127.0.0.1" || e.Status != 401 {
		t.Errorf("got %+v", e)
	}
	wantStatus(t, "GET", "http://"+address+"/metrics", "", nil, http.StatusOK, `weir_build_info{go_version="go`)

	must.OK(t, command.Process.Signal(syscall.SIGTERM))
	next("the counter backend is about to end")
	wantStatus(t, "GET", "http://"+address+"/readyz", "", nil, http.StatusServiceUnavailable, "about to end")
	wantStatus(t, "POST", "http://"+address+wire.PushPath, "s3cret", body, http.StatusOK)
	next("push")
	// A push whose body is not complete is under way when weir serve ends.
	slow := must.Get(net.Dial("tcp", address))(t)
	t.Cleanup(func() { slow.Close() })
	head := "POST " + wire.PushPath + " HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer s3cret\r\nContent-Type: " + wire.ContentType + "\r\nExpect: 100-continue\r\nContent-Length: "
	must.Get(slow.Write(append([]byte(head), []byte(strconv.Itoa(len(body))+"\r\n\r\n")...)))(t)
	answer := bufio.NewReader(slow)
	if line, err := answer.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("got %q, %v", line, err)
	}
	if e := next("the counter backend ends"); e.UnderWay == nil || *e.UnderWay != 1 {
		t.Errorf("want one request under way, got %+v", e)
	}
	must.Get(io.Copy(slow, bytes.NewReader(body)))(t)
	must.EqualOrEnd(t, must.Get(answer.ReadString('\n'))(t), "\r\n", "")
	if line, err := answer.ReadString('\n'); err != nil || !strings.Contains(line, "200 OK") {
		t.Errorf("the push that was under way: %q, %v", line, err)
	}
	next("push")
	if e := next("the counter backend has ended"); e.Drained == nil || *e.Drained != 1 || e.CutOff == nil || *e.CutOff != 0 {
		t.Errorf("want one drained, got %+v", e)
	}
	rest, err := io.ReadAll(log)
	if err != nil || len(rest) > 0 {
		t.Errorf("got %s, %v", rest, err)
	}
	must.Report(t, command.Wait())
}
