package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/internal/must"
)

const code = `package p

const most = 3 + 4

type T struct {
	a []int
	b [4]int
}

func (t *T) f(n int, ok bool) bool {
	t.a[0]++
	n += most
	return n < 1 && !ok || n <
		min(t.a[0], -n)
}

func g() bool { return true || true }
`

func TestList(t *testing.T) {
	t.Parallel()
	mutants := must.Get(list("p/p.go", []byte(code)))(t)
	var got []string
	for _, m := range mutants {
		got = append(got, m.name)
		if changed := string(m.apply([]byte(code))); changed == code || strings.Count(changed, "\n") != strings.Count(code, "\n") {
			t.Errorf("%s gives\n%s", m.name, changed)
		}
	}
	want := []string{
		"p/p.go package: 3 + 4 → 3 - 4",
		"p/p.go T.f: t.a[0]++ → t.a[0]--",
		"p/p.go T.f: t.a[0] → t.a[1]",
		"p/p.go T.f: n += most → n -= most",
		"p/p.go T.f: n < 1 && !ok || n < → n < 1 && !ok && n <",
		"p/p.go T.f: n < 1 && !ok → n < 1 || !ok",
		"p/p.go T.f: n < 1 → n <= 1",
		"p/p.go T.f: n < 1 → n >= 1",
		"p/p.go T.f: n < 1 → n < 2",
		"p/p.go T.f: n < 1 → n < 0",
		"p/p.go T.f: !ok → ok",
		"p/p.go T.f: n < → n <=",
		"p/p.go T.f: n < → n >=",
		"p/p.go T.f: min(t.a[0], -n) → max(t.a[0], -n)",
		"p/p.go T.f: t.a[0] → t.a[1] #2",
		"p/p.go T.f: -n → n",
		"p/p.go g: true || true → true && true",
		"p/p.go g: true || true → false || true",
		"p/p.go g: true || true → true || false",
	}
	must.Equal(t, strings.Join(got, "\n"), strings.Join(want, "\n"), "")
}

// Each change in equal.txt can still be made, and has a reason.
func TestEqual(t *testing.T) {
	t.Parallel()
	for name, reason := range parseEqual(equalText) {
		if reason == "" {
			t.Errorf("%s: nothing says why", name)
		}
		file, _, _ := strings.Cut(name, " ")
		content, err := os.ReadFile(filepath.Join("../..", file))
		if err != nil {
			t.Error(err)
			continue
		}
		mutants, err := list(file, content)
		must.Report(t, err)
		must.Equal(t, slices.ContainsFunc(mutants, func(m mutant) bool { return m.name == name }), true, "%s: there is such a change", name)
	}
}

// In a module with tests in two packages, each of them notices its part.
func TestRun(t *testing.T) {
	folder := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":      "module m\n\ngo 1.26\n",
		"a/a.go":      "package a\n\nfunc Small(n int) bool { return n < 4 }\n\nfunc Sum(a, b int) int { return a + b }\n\nfunc Most(a, b int) int { return max(a, b) }\n\nfunc Text(a string) string { return a + a }\n",
		"a/a_test.go": "package a\n\nimport \"testing\"\n\nfunc TestSmall(t *testing.T) {\n\tif !Small(3) || Small(4) {\n\t\tt.Error()\n\t}\n}\n",
		"b/b_test.go": "package b\n\nimport (\n\t\"testing\"\n\n\t\"m/a\"\n)\n\nfunc TestSum(t *testing.T) {\n\tif a.Sum(2, 3) != 5 {\n\t\tt.Error()\n\t}\n}\n",
		"c/c_test.go": "package c\n\nimport \"testing\"\n\nfunc TestNothing(t *testing.T) {}\n",
	} {
		path := filepath.Join(folder, name)
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.OK(t, os.WriteFile(path, []byte(content), 0o600))
	}
	t.Chdir(folder)
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "")
	for _, test := range []struct {
		name, match string
		equal       map[string]string
		want        []string
		fails       bool
	}{
		{
			"all", "", nil,
			[]string{"caught by m/a\n\ta/a.go Small: n < 4 → n >= 4", "caught by m/b\n\ta/a.go Sum: a + b → a - b", "NOT NOTICED\n\ta/a.go Most: max(a, b) → min(a, b)", "6 changes: 5 caught, 0 equal, 1 not noticed"},
			true,
		},
		{
			"one by its name", "max(a, b)", map[string]string{"a/a.go Most: max(a, b) → min(a, b)": "nobody asks"},
			[]string{"equal\n\ta/a.go Most: max(a, b) → min(a, b)", "1 changes: 0 caught, 1 equal, 0 not noticed"}, false,
		},
		{
			"wrongly said to be equal", "n >= 4", map[string]string{"a/a.go Small: n < 4 → n >= 4": "nobody asks"},
			[]string{"IN equal.txt, BUT caught by m/a"}, true,
		},
	} {
		out := &strings.Builder{}
		r := &run{out: out, equal: test.equal}
		must.OK(t, r.choose([]string{"./a"}, 1, 0, test.match))
		must.Equal(t, r.all([]string{"./b", "./c"}) != nil, test.fails, "%s: fails", test.name)
		for _, want := range test.want {
			must.Contains(t, out.String(), want, "%s: got\n%s", test.name, out)
		}
	}
}
