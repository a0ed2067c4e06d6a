package wire

import (
	"math"
	"strings"
	"testing"

	"weir/internal/must"
)

func exampleReport() *Report {
	name := AppendValue(AppendValue(nil, []byte("ann"), false), []byte("Mozi"), true)
	return &Report{Namespace: "shop", Node: 1, Sender: 2, AtNanos: 3e18, Warnings: []Warning{
		{Rule: "per-user", ID: ID{1}, Limit: 1, WidthMillis: 60_000, EndMillis: 3e12, Used: 8, Quota: 10, At: 500, Name: name},
		{Rule: "per-user", ID: ID{2}, WidthMillis: 1, Name: []byte{}},
	}, Held: []HeldKey{
		{ID: ID{1}, Places: 3, SinceNanos: 1_700_000_000_000_000_000}, {ID: ID{2}, Places: 1},
	}, Digest: 7, Told: []byte("told"), Rules: []RuleReport{
		{
			Name: "per-user", SpanMillis: 60_000, Amounts: Amounts{Requests: 10, Hits: 20, RefusedRequests: 3, RefusedHits: 4}, Every: 8, SyncMillis: 1500,
			Used:    KeyList{Floor: 2, Keys: []ReportKey{{ID: ID{1}, Hits: 9, Error: 2, Recent: 3, Use: 1000, Leased: 5, Pending: 4, Name: name}, {ID: ID{2}, Hits: 3, Name: []byte{}}}},
			Refused: KeyList{Keys: []ReportKey{{ID: ID{1}, Hits: 4, Name: []byte{}}}},
		},
		{
			Name: "new", Shadow: true, SpanMillis: 1, Every: 1, Limits: []ReportLimit{{Max: 5, WidthMillis: 1000}, {Max: 50, WidthMillis: 60_000}},
			Sample: Sample{Threshold: math.MaxUint64, SinceNanos: 1, Keys: []SampledKey{
				{Hash: 7, Refused: true, Asked: []AskedWindows{{Newest: 1_700_000_000, Hits: []uint32{1, 0, math.MaxUint32}}, {Newest: 28_333_333, Hits: []uint32{9}}}},
				{Hash: 8, Asked: []AskedWindows{{}, {}}},
			}},
		},
		{
			Name: "busy", Shadow: true, SpanMillis: 1, Every: 1, Limits: []ReportLimit{{Max: 5, WidthMillis: 1000}, {Max: 50, WidthMillis: 60_000}},
			Sample: Sample{
				Threshold: 9, SinceNanos: 1, Keys: []SampledKey{{Hash: 7, Asked: []AskedWindows{{Newest: 5, Hits: []uint32{1}}, {}}}},
				Busy: []BusyWindows{
					{Newest: 1_700_000_000, Windows: []BusyWindow{{Hits: 9, Floor: 1, Keys: []BusyKey{{10, 5, 1}}}, {}, {Hits: 90, Keys: []BusyKey{{10, 0, 2}, {11, 50, 0}}}}},
					{Newest: 28_333_333, Windows: []BusyWindow{{Hits: 99, Keys: []BusyKey{{11, 50, 1}}}}},
				},
			},
		},
	}}
}

func TestReport(t *testing.T) {
	body := roundTrip(t, exampleReport(), AppendReport, DecodeReport)
	if namespace, ok := PushNamespace(body); namespace != "shop" || !ok || !IsReport(body) || IsUsed(body) {
		t.Errorf("namespace %q, %v", namespace, ok)
	}
	got := must.Get(DecodeReport(body))(t)
	value, cut, rest, ok := NextValue(got.Rules[0].Used.Keys[0].Name)
	if string(value) != "ann" || cut || !ok {
		t.Errorf("value %q, cut %v, %v", value, cut, ok)
	}
	if value, cut, rest, ok = NextValue(rest); string(value) != "Mozi" || !cut || !ok || len(rest) > 0 {
		t.Errorf("value %q, cut %v, %v", value, cut, ok)
	}
	_, err := DecodePush(body)
	must.Is(t, err, ErrMalformed, "as a push")
	one := exampleReport() // a rule of one limit has busy keys, too
	r := &one.Rules[2]
	r.Limits, r.Sample.Busy, r.Sample.Keys[0].Asked = r.Limits[:1], r.Sample.Busy[:1], r.Sample.Keys[0].Asked[:1]
	must.Same(t, must.Get(DecodeReport(AppendReport(nil, one)))(t), one, "a rule of one limit")
}

// Who does not look for busy keys passes over keys above the threshold, and takes the others as before.
func TestBusyKeysAreAboveTheThreshold(t *testing.T) {
	s := &exampleReport().Rules[2].Sample
	keys := s.pack()
	must.Same(t, keys[:len(s.Keys)], s.Keys, "keys")
	must.Equal(t, len(keys), len(s.Keys)+3, "keys")
	for _, k := range keys[len(s.Keys):] {
		if k.Hash <= s.Threshold {
			t.Errorf("%+v is no more than %d", k, s.Threshold)
		}
	}
	s.Busy = nil
	must.Same(t, s.pack(), s.Keys, "a sample without busy keys is another one")
}

func TestReportBounds(t *testing.T) {
	for name, change := range map[string]func(r *Report){
		"namespace":           func(r *Report) { r.Namespace = "" },
		"rule":                func(r *Report) { r.Rules[0].Name = "" },
		"long rule":           func(r *Report) { r.Rules[0].Name = strings.Repeat("x", 65) },
		"rules":               func(r *Report) { r.Rules = make([]RuleReport, MaxReportRules+1) },
		"rule for a terminal": func(r *Report) { r.Rules[0].Name = "\x1b[2J" },
		"rule twice":          func(r *Report) { r.Rules[1].Name = r.Rules[0].Name },
		"hits":                func(r *Report) { r.Rules[0].Hits = MaxHits + 1 },
		"keys":                func(r *Report) { r.Rules[0].Used.Keys = make([]ReportKey, MaxReportKeys+1) },
		"error":               func(r *Report) { r.Rules[0].Used.Keys[0].Error = 10 },
		"name":                func(r *Report) { r.Rules[0].Used.Keys[0].Name = make([]byte, MaxReportName+1) },
		"values":              func(r *Report) { r.Rules[0].Used.Keys[0].Name = make([]byte, MaxReportValues+1) },
		"no name":             func(r *Report) { r.Rules[0].Used.Keys[0].Name = []byte{9} },
		"limits":              func(r *Report) { r.Rules[1].Limits = make([]ReportLimit, 9) },
		"window":              func(r *Report) { r.Rules[1].Limits[0].WidthMillis = 0 },
		"warnings":            func(r *Report) { r.Warnings = make([]Warning, MaxReportWarnings+1) },
		"warning's rule":      func(r *Report) { r.Warnings[0].Rule = "" },
		"warning's limit":     func(r *Report) { r.Warnings[0].Limit = MaxLimits },
		"warning's window":    func(r *Report) { r.Warnings[0].WidthMillis = MaxWidthMillis + 1 },
		"warning's use":       func(r *Report) { r.Warnings[0].Used = MaxHits + 1 },
		"warning's name":      func(r *Report) { r.Warnings[0].Name = []byte{9} },
		"held keys":           func(r *Report) { r.Held = make([]HeldKey, MaxReportHeld+1) },
		"held places":         func(r *Report) { r.Held = []HeldKey{{Places: MaxHits + 1}} },
		"told rules":          func(r *Report) { r.Told = make([]byte, MaxTold+1) },
		"sample":              func(r *Report) { r.Rules[1].Sample.Keys = make([]SampledKey, MaxReportSample+1) },
		"windows":             func(r *Report) { r.Rules[1].Sample.Keys[0].Asked[0].Hits = make([]uint32, MaxReportWindows+1) },
	} {
		r := exampleReport()
		change(r)
		_, err := DecodeReport(AppendReport(nil, r))
		must.Is(t, err, ErrMalformed, "%s", name)
	}
}

func FuzzDecodeReport(f *testing.F) {
	f.Add(AppendReport(nil, exampleReport()))
	f.Add(ofRelease(f)["report"])
	f.Add(AppendReport(nil, &Report{Namespace: "n", Rules: exampleReport().Rules}))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeReport(b)
		if err != nil {
			must.Is(t, err, ErrMalformed, "read")
			return
		}
		must.Same(t, must.Get(DecodeReport(AppendReport(nil, r)))(t), r, "written again")
	})
}
