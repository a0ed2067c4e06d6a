package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weir/internal/must"
)

// structOf returns the bytes of a Struct with these fields as Envoy passes them. ok is false for
// JSON that no Struct can hold.
func structOf(t testing.TB, document []byte) (serialized []byte, ok bool) {
	t.Helper()
	s := new(structpb.Struct)
	if protojson.Unmarshal(document, s) != nil {
		return nil, false
	}
	return marshaled(t, s), true
}

func marshaled(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b := must.Get(proto.MarshalOptions{Deterministic: true}.Marshal(m))(t)
	return b
}

// Every configuration means the same as JSON and as a Struct, and has the same mistakes.
func TestStruct(t *testing.T) {
	documents, read := 0, 0
	for _, file := range slices.Concat(ReadMistakes(t), ReadArchive(t, "good.txtar")) {
		documents++
		document := file.Content
		serialized, ok := structOf(t, document)
		if !ok || len(serialized) == 0 || file.Name == "response.headers--many" {
			continue // the surplus header depends on their order
		}
		read++
		want, wantErr := Parse(document)
		got, gotErr := Parse(serialized)
		if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(paths(gotErr), paths(wantErr)) {
			t.Errorf("%s:\ngot %+v, %v\nwant %+v, %v", file.Name, got, gotErr, want, wantErr)
		}
	}
	must.AtLeast(t, read, max(100, documents*9/10), "of %d files, those read as Structs", documents)
}

// paths returns the paths of all mistakes, sorted, because a Struct has no order.
func paths(err error) (all []string) {
	var errs Errors
	if !errors.As(err, &errs) {
		return nil
	}
	for _, e := range errs {
		all = append(all, e.Path)
	}
	slices.Sort(all)
	return all
}

func TestStructNumbers(t *testing.T) {
	for number, want := range map[float64]string{
		0: "0", 1: "1", -1: "-1", 1e15 - 1: "999999999999999", 1 << 53: "9007199254740992", 1e6: "1000000", 0.05: "0.05", 0.001: "0.001",
		0.30000000000000004: "0.30000000000000004", 1e300: "1e+300", 5e-324: "5e-324", 1e-6: "0.000001", 1. / 3: "0.3333333333333333",
	} {
		s := &structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewNumberValue(number)}}
		if got, problem := structJSON(string(marshaled(t, s))); got != `{"a":`+want+`}` || problem != "" {
			t.Errorf("%v: got %s, %q, want %s", number, got, problem, want)
		}
	}
}

func TestStructMistakes(t *testing.T) {
	const remedy = "want a google.protobuf.StringValue with JSON, or a google.protobuf.Struct, got a message that "
	field := func(v *structpb.Value) string {
		return string(marshaled(t, &structpb.Struct{Fields: map[string]*structpb.Value{"a": v}}))
	}
	nested := func(levels int) *structpb.Value {
		v := structpb.NewNullValue()
		for range levels {
			v = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{v}})
		}
		return v
	}
	wrapped := must.Get(anypb.New(&structpb.Struct{Fields: map[string]*structpb.Value{"a": nested(0)}}))(t)
	good := field(structpb.NewStringValue("x"))
	tests := map[string]struct{ document, want string }{
		"NaN":                {field(structpb.NewNumberValue(math.NaN())), remedy + "has a number that JSON lacks"},
		"infinity":           {field(structpb.NewNumberValue(math.Inf(-1))), remedy + "has a number that JSON lacks"},
		"no UTF-8":           {strings.Replace(good, "x", "\xff", 1), remedy + "is not JSON at line 1, column 7: want UTF-8"},
		"name not UTF-8":     {strings.Replace(good, "a", "\xff", 1), remedy + "is not JSON at line 1, column 3: want UTF-8"},
		"too deep":           {field(nested(64)), remedy + "has too many levels"},
		"deep enough":        {field(nested(63)), "a: unknown field"},
		"surplus":            {good + "x", remedy + "has an unknown field"},
		"too long as JSON":   {field(structpb.NewStringValue(strings.Repeat("\x01", 3<<16))), remedy + "has more than 1048576 bytes as JSON"},
		"truncated":          {good[:len(good)-1], remedy + "is shorter than it says"},
		"value of two kinds": {"\x0a\x09\x0a\x01a\x12\x04\x08\x00\x08\x00", remedy + "has a field twice"},
		"value of no kind":   {"\x0a\x05\x0a\x01a\x12\x00", remedy + "is shorter than it says"},
		"two names":          {"\x0a\x0a\x0a\x01a\x0a\x01b\x12\x02\x08\x00", remedy + "has an unknown field"},
		"two values":         {"\x0a\x0b\x0a\x01a\x12\x02\x08\x00\x12\x02\x08\x00", remedy + "has a field twice"},
		"unknown kind":       {"\x0a\x07\x0a\x01a\x12\x02\x38\x00", remedy + "has an unknown field"},
		"long number":        {"\x0a\x11\x0a\x01a\x12\x0c\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", remedy + "has a number of more than 64 bits"},
		"field given twice":  {strings.Repeat("\x0a\x10\x0a\x09namespace\x12\x03\x1a\x01n", 2), "namespace: given twice"},
		"Any":                {string(marshaled(t, wrapped)), remedy + "has an unknown field"},
		"Value":              {string(marshaled(t, structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"a": nested(0)}}))), remedy + "is something else"},
		"string Value":       {string(marshaled(t, structpb.NewStringValue(`{"rules": []}`))), remedy + "is something else"},
		"ListValue":          {string(marshaled(t, nested(1).GetListValue())), remedy + "is something else"},
		"Int32Value":         {string(marshaled(t, wrapperspb.Int32(5))), remedy + "is something else"},
		"BoolValue":          {string(marshaled(t, wrapperspb.Bool(true))), remedy + "is something else"},
	}
	for name, test := range tests {
		_, err := Parse([]byte(test.document))
		must.Contains(t, fmt.Sprint(err), test.want, "%s", name)
	}
}

// JSON is read as JSON, even if it begins like a Struct, and its mistakes have their places.
func TestJSONIsNoStruct(t *testing.T) {
	must.Get(Parse([]byte("\n\r\n\t" + like + "\n")))(t)
	for document, want := range map[string]string{
		"\n{\"a\x01": "not JSON at line 2, column 4: want more of a string",
		"\n\x01{":    "got a message that is something else",
		"{\"a\x12":   "not JSON at line 1, column 4: want more of a string",
		"\n\n":       "got an empty document",
		"":           "got an empty document",
		"x":          "not JSON at line 1, column 1",
	} {
		_, err := Parse([]byte(document))
		must.Contains(t, fmt.Sprint(err), want, "%q", document)
	}
}

// FuzzStruct compares with google.golang.org/protobuf, which accepts more: fields given twice,
// unknown fields, missing values, and any depth.
func FuzzStruct(f *testing.F) {
	for _, file := range ReadArchive(f, "good.txtar") {
		if serialized, ok := structOf(f, file.Content); ok {
			f.Add(serialized)
		}
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		text, problem := structJSON(string(document))
		if broken, _ := checkSyntax(text); problem == "" && broken != "" {
			problem = "strings that are not UTF-8"
		}
		if problem != "" {
			if _, err := Parse(document); err == nil && kindOf(string(document)) == documentStruct {
				t.Fatalf("accepted with %s", problem)
			}
			return
		}
		s := new(structpb.Struct)
		must.OKf(t, proto.Unmarshal(document, s), "got %s of what protobuf refuses", text)
		var got any
		must.OKf(t, json.Unmarshal([]byte(text), &got), "%s", text)
		if want := any(s.AsMap()); !reflect.DeepEqual(got, want) {
			t.Fatalf("got %v of %v", got, want)
		}
		if again, problem := structJSON(string(marshaled(t, s))); problem != "" || !json.Valid([]byte(again)) {
			t.Fatalf("%s: written again: %s, %q", text, again, problem)
		}
	})
}
