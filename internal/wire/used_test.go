package wire

import (
	"bytes"
	"strings"
	"testing"

	"weir/internal/must"
)

// endOfDays is when the last valid day ends.
const endOfDays = 157_001 * 24 * 3600

func exampleUsed() *Used {
	label := AppendUsedLabel(nil, &UsedLabel{Rule: "dollars", ID: ID{1, 2, 3}, Model: "gpt-5", Name: AppendValue(nil, []byte("ann"), true)})
	budget := AppendBudget(nil, &Budget{AtSeconds: endOfDays, StartSeconds: endOfDays - 1, EndSeconds: endOfDays, Used: 7, Quota: MaxHits})
	return &Used{Namespace: "shop", Sender: 1<<64 - 1, Sequence: MaxHits, AtNanos: 1 << 63, Node: 7, Ended: []uint64{1, 1<<64 - 1}, Rows: []UsedRow{
		{Label: label, Day: MaxUsedDay, Hits: -MaxHits, Budget: budget}, {Label: AppendUsedLabel(nil, &UsedLabel{Rule: "r"}), Hits: MaxHits, Budget: []byte{}},
	}}
}

func TestUsed(t *testing.T) {
	body := roundTrip(t, exampleUsed(), AppendUsed, DecodeUsed)
	if namespace, ok := PushNamespace(body); !ok || namespace != "shop" || !IsUsed(body) || IsReport(body) {
		t.Errorf("namespace %q", namespace)
	}
	label, ok := DecodeUsedLabel(exampleUsed().Rows[0].Label)
	if !ok || label.Rule != "dollars" || label.Model != "gpt-5" || label.ID != (ID{1, 2, 3}) {
		t.Errorf("label %+v", label)
	}
	if !AnswersUsed(AppendUsedAnswer(nil, 5), 5) || AnswersUsed(AppendUsedAnswer(nil, 5), 6) || AnswersUsed(nil, 0) {
		t.Error("answers are mixed up")
	}
}

func TestUsedIsChecked(t *testing.T) {
	for name, change := range map[string]func(u *Used){
		"no namespace":             func(u *Used) { u.Namespace = "" },
		"sequence 0":               func(u *Used) { u.Sequence = 0 },
		"a large sequence":         func(u *Used) { u.Sequence = MaxHits + 1 },
		"too many that have ended": func(u *Used) { u.Ended = make([]uint64, MaxUsedEnded+1) },
		"no label":                 func(u *Used) { u.Rows[0].Label = nil },
		"a label and more":         func(u *Used) { u.Rows[0].Label = append(bytes.Clone(u.Rows[0].Label), 0) },
		"a rule with a bell":       func(u *Used) { u.Rows[0].Label = AppendUsedLabel(nil, &UsedLabel{Rule: "a\a"}) },
		"a long model": func(u *Used) {
			u.Rows[0].Label = AppendUsedLabel(nil, &UsedLabel{Rule: "a", Model: strings.Repeat("m", MaxUsedModel+1)})
		},
		"a name that is none":  func(u *Used) { u.Rows[0].Label = AppendUsedLabel(nil, &UsedLabel{Rule: "a", Name: []byte{200}}) },
		"a day too late":       func(u *Used) { u.Rows[0].Day = MaxUsedDay + 1 },
		"too many hits":        func(u *Used) { u.Rows[0].Hits = MaxHits + 1 },
		"a budget that is cut": func(u *Used) { u.Rows[0].Budget = u.Rows[0].Budget[:1] },
		"a window without end": func(u *Used) {
			u.Rows[0].Budget = AppendBudget(nil, &Budget{EndSeconds: endOfDays})
		},
		"a window after all days": func(u *Used) {
			u.Rows[0].Budget = AppendBudget(nil, &Budget{StartSeconds: endOfDays, EndSeconds: endOfDays + 1})
		},
		"a budget of a time to come": func(u *Used) {
			u.Rows[0].Budget = AppendBudget(nil, &Budget{AtSeconds: MaxHits, EndSeconds: 1})
		},
		"a window of nothing": func(u *Used) { u.Rows[0].Budget = AppendBudget(nil, &Budget{StartSeconds: 1, EndSeconds: 1}) },
		"too long": func(u *Used) {
			long := UsedRow{Label: AppendUsedLabel(nil, &UsedLabel{Rule: "a", Model: strings.Repeat("m", MaxUsedModel)})}
			for range MaxUsedRows - 2 {
				u.Rows = append(u.Rows, long)
			}
		},
	} {
		u := exampleUsed()
		change(u)
		_, err := DecodeUsed(AppendUsed(nil, u))
		must.Is(t, err, ErrMalformed, "%s", name)
	}
}

func FuzzDecodeUsed(f *testing.F) {
	f.Add(AppendUsed(nil, exampleUsed()))
	f.Add([]byte{usedVersion})
	f.Fuzz(func(t *testing.T, b []byte) {
		u, err := DecodeUsed(b)
		if err != nil {
			return
		}
		must.Equal(t, len(must.Get(DecodeUsed(AppendUsed(nil, u)))(t).Rows), len(u.Rows), "rows")
	})
}
