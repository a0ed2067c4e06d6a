package test

import (
	"cmp"
	"debug/dwarf"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/internal/envoytest"
	"weir/internal/must"
)

// TestVersions loads the library into Envoys: since 1.39 they accept it. Older Envoys lack
// functions that it needs: they refuse the configuration, and the log says why. An Envoy finds the
// library by its name, in the folder that an environment variable names.
func TestVersions(t *testing.T) {
	t.Parallel()
	file := build(t)
	binaries := must.Get(envoytest.Binaries())(t)
	for _, binary := range binaries {
		t.Run(binary.Version, func(t *testing.T) {
			t.Parallel()
			e, files := envoytest.RunFiles(t, envoytest.Options{Binary: binary, Prefix: []string{"env", "ENVOY_DYNAMIC_MODULES_SEARCH_PATH=" + filepath.Dir(file)}})
			named := object{"name": "weir", "typed_config": envoytest.Typed("envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter", object{
				"dynamic_module_config": object{"name": "traps", "do_not_close": true}, "filter_name": "a",
				"filter_config": envoytest.Typed("google.protobuf.StringValue", object{"value": ""}),
			})}
			err := files.SetListeners(t.Context(), e, []object{listener("app", named)})
			if minor(t, binary.Version) >= 39 {
				must.OK(t, err)
				wantStatus(t, address(t, e, "app"), "answer", 418)
				return
			}
			if err == nil || !strings.Contains(e.Log(), "the native form needs Envoy 1.39 or 1.40") {
				t.Errorf("got %v, want it to be refused with a reason, and\n%s", err, e.Log())
			}
		})
	}
}

func minor(t *testing.T, version string) (minor int) {
	t.Helper()
	must.Get(fmt.Sscanf(version, "1.%d.", &minor))(t)
	return minor
}

var envoysHeader = flag.String("abi", "", "Envoy's `abi.h`, which native/abi.h is compared with; those in dist/envoy/VERSION if empty")

// TestABI compares native/abi.h with Envoy's own header as a compiler reads them: the parameters
// and results of each function, and the values of constants. The nightly workflow fetches Envoy's
// header. Without it, the test compares the names with those that Envoy exports.
func TestABI(t *testing.T) {
	t.Parallel()
	functions := functionsOf(t)
	binary := must.Get(envoytest.Newest())(t)
	symbols := must.Get(exec.CommandContext(t.Context(), "nm", "-D", "--defined-only", binary.Path).Output())(t)
	exported := strings.Fields(string(symbols))
	for _, name := range functions {
		if strings.Contains(name, "_callback_") && !slices.Contains(exported, name) {
			t.Errorf("Envoy %s exports no %s", binary.Version, name)
		}
	}
	headers := must.Get(filepath.Glob(cmp.Or(*envoysHeader, "../../dist/envoy/*/abi.h")))(t)
	for _, header := range headers {
		if *envoysHeader == "" && minor(t, filepath.Base(filepath.Dir(header))) < 39 {
			continue
		}
		for _, difference := range differences(t, header, functions) {
			t.Errorf("%s: %s", header, difference)
		}
	}
}

// TestABIDifferences notices another parameter, another type, and another order of an enumeration.
func TestABIDifferences(t *testing.T) {
	t.Parallel()
	functions := functionsOf(t)
	text := must.Get(os.ReadFile("../abi.h"))(t)
	for _, c := range []struct{ from, to, said string }{
		{"", "", ""},
		{"uint64_t by);", "uint32_t by);", "http_filter_config_increment_counter"},
		{"(void* filter, header_map map);", "(void* filter, header_map map, bool all);", "http_get_headers_size"},
		{"  bytes key, value;", "  bytes key; uint32_t value;", "http_get_headers:"},
	} {
		header := filepath.Join(t.TempDir(), "abi.h")
		must.OK(t, os.WriteFile(header, []byte(strings.Replace(string(text), c.from, c.to, 1)), 0o600))
		got := strings.Join(signatureDifferences(t, header, functions), "\n")
		if !strings.Contains(got, c.said) || (got == "") != (c.said == "") {
			t.Errorf("%s -> %s: got %q", c.from, c.to, got)
		}
	}
}

// functionsOf returns the names of all functions in native/abi.h.
func functionsOf(t *testing.T) (names []string) {
	t.Helper()
	text := must.Get(os.ReadFile("../abi.h"))(t)
	for _, f := range regexp.MustCompile(`\b(CB|ON)\((\w+)\)\(`).FindAllStringSubmatch(string(text), -1) {
		names = append(names, map[string]string{"CB": "envoy_dynamic_module_callback_", "ON": "envoy_dynamic_module_on_"}[f[1]]+f[2])
	}
	must.AtLeast(t, len(names), 50, "functions")
	return names
}

func differences(t *testing.T, header string, functions []string) []string {
	t.Helper()
	return append(signatureDifferences(t, header, functions), numberDifferences(t, header)...)
}

func signatureDifferences(t *testing.T, header string, functions []string) (all []string) {
	t.Helper()
	ours, theirs := signatures(t, "../abi.h", functions), signatures(t, header, functions)
	for _, name := range functions {
		if !alike(ours[name], theirs[name]) {
			all = append(all, fmt.Sprintf("%s: it has %s, native/abi.h %s", strings.TrimPrefix(name, "envoy_dynamic_module_callback_"), theirs[name], ours[name]))
		}
	}
	return all
}

// alike compares signatures. A pointer to void matches any pointer.
func alike(a, b string) bool {
	as, bs := strings.Fields(a), strings.Fields(b)
	return slices.EqualFunc(as, bs, func(a, b string) bool {
		return a == b || strings.HasPrefix(a, "*") && strings.HasPrefix(b, "*") && (a == "*void" || b == "*void")
	})
}

// signatures returns the types of functions as a compiler reads them: "result parameter…".
func signatures(t *testing.T, header string, functions []string) map[string]string {
	t.Helper()
	header = must.Get(filepath.Abs(header))(t)
	var source strings.Builder
	fmt.Fprintf(&source, "#include %q\n", header)
	for _, name := range functions {
		fmt.Fprintf(&source, "__typeof__(%s)* p_%s;\n", name, name)
	}
	dir := t.TempDir()
	run(t, dir, source.String(), "gcc", "-g", "-w", "-c", "abi.c", "-o", "abi.o")
	file := must.Get(elf.Open(filepath.Join(dir, "abi.o")))(t)
	defer file.Close()
	data := must.Get(file.DWARF())(t)
	all := map[string]string{}
	for r := data.Reader(); ; {
		entry := must.Get(r.Next())(t)
		if entry == nil {
			return all
		}
		name, _ := entry.Val(dwarf.AttrName).(string)
		at, typed := entry.Val(dwarf.AttrType).(dwarf.Offset)
		if name, found := strings.CutPrefix(name, "p_"); found && typed && entry.Tag == dwarf.TagVariable {
			of := must.Get(data.Type(at))(t)
			f, is := of.(*dwarf.PtrType).Type.(*dwarf.FuncType)
			must.EqualOrEnd(t, is, true, "%s is a %s", name, of)
			words := []string{shape(f.ReturnType)}
			for _, p := range f.ParamType {
				words = append(words, shape(p))
			}
			all[name] = strings.Join(words, " ")
		}
	}
}

// shape returns the layout of a value in registers and memory. Names of types don't matter there.
func shape(of dwarf.Type) string {
	switch of := of.(type) {
	case nil, *dwarf.VoidType:
		return "void"
	case *dwarf.TypedefType:
		return shape(of.Type)
	case *dwarf.QualType:
		return shape(of.Type)
	case *dwarf.PtrType:
		if strings.HasPrefix(shape(of.Type), "*") || of.Type.Size() == 0 {
			return "*void"
		}
		return "*" + shape(of.Type)
	case *dwarf.StructType:
		var members strings.Builder
		for _, f := range of.Field {
			inner := shape(f.Type)
			members.WriteString(strings.Trim(inner, "{}") + ",")
		}
		return "{" + strings.ReplaceAll(members.String(), ",,", ",") + "}"
	case *dwarf.BoolType:
		return "bool"
	default:
		return fmt.Sprint(of.Size())
	}
}

// numbers returns constants of native/, each with Envoy's name for it.
func numbers(t *testing.T) [][2]string {
	t.Helper()
	all := [][2]string{}
	list := func(prefix, ours, theirs string) {
		for i, name := range strings.Fields(ours) {
			all = append(all, [2]string{name, prefix + strings.Fields(theirs)[i]})
		}
	}
	list("http_header_type_", "REQUEST_HEADERS REQUEST_TRAILERS RESPONSE_HEADERS RESPONSE_TRAILERS", "RequestHeader RequestTrailer ResponseHeader ResponseTrailer")
	list("http_body_type_", "REQUEST_PIECE REQUEST_BUFFERED RESPONSE_PIECE RESPONSE_BUFFERED",
		"ReceivedRequestBody BufferedRequestBody ReceivedResponseBody BufferedResponseBody")
	list("log_level_", "LOG_TRACE LOG_DEBUG LOG_INFO LOG_WARN LOG_ERROR LOG_CRITICAL", "Trace Debug Info Warn Error Critical")
	for _, kind := range []string{"request", "response"} {
		list("on_http_filter_"+kind+"_headers_status_", "HEADERS_CONTINUE HEADERS_STOP", "Continue StopIteration")
		list("on_http_filter_"+kind+"_body_status_", "BODY_CONTINUE BODY_STOP_AND_WATERMARK BODY_STOP_NO_BUFFER", "Continue StopIterationAndWatermark StopIterationNoBuffer")
		list("on_http_filter_"+kind+"_trailers_status_", "TRAILERS_CONTINUE TRAILERS_STOP", "Continue StopIteration")
	}
	list("http_callout_init_result_", "0 CLUSTER_NOT_FOUND", "Success ClusterNotFound")
	list("http_callout_result_", "0", "Success")
	list("metrics_result_", "0", "Success")
	list("metadata_source_", "METADATA_DYNAMIC", "Dynamic")
	text := must.Get(os.ReadFile("../attributes.c"))(t)
	attributes := regexp.MustCompile(`\{"([a-z0-9_.]+)", (\w+), (true|false)\}`).FindAllStringSubmatch(string(text), -1)
	must.AtLeast(t, len(attributes), 20, "attributes")
	for _, a := range attributes {
		var name strings.Builder
		for _, word := range strings.FieldsFunc(strings.Replace(a[1], "useragent", "user_agent", 1), func(r rune) bool { return r == '.' || r == '_' }) {
			name.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
		camel := strings.Replace(name.String(), "RouteName", "XdsRouteName", 1)
		all = append(all, [2]string{a[2], "attribute_id_" + strings.Replace(camel, "XdsXds", "Xds", 1)})
	}
	return all
}

func numberDifferences(t *testing.T, header string) (all []string) {
	t.Helper()
	pairs := numbers(t)
	ours, theirs := make([]string, len(pairs)), make([]string, len(pairs))
	for i, p := range pairs {
		ours[i], theirs[i] = p[0], "envoy_dynamic_module_type_"+p[1]
	}
	mine, envoys := values(t, "../abi.h", ours), values(t, header, theirs)
	for i := range pairs {
		if mine[i] != envoys[i] {
			all = append(all, fmt.Sprintf("%s is %s, and native/ has %s for it", theirs[i], envoys[i], mine[i]))
		}
	}
	return all
}

func values(t *testing.T, header string, names []string) []string {
	t.Helper()
	header = must.Get(filepath.Abs(header))(t)
	var source strings.Builder
	fmt.Fprintf(&source, "#include <stdio.h>\n#include %q\nint main(void) {\n", header)
	for _, name := range names {
		fmt.Fprintf(&source, "printf(\"%%d\\n\", (int)(%s));\n", name)
	}
	source.WriteString("}\n")
	dir := t.TempDir()
	run(t, dir, source.String(), "gcc", "-w", "abi.c", "-o", "values")
	out := must.Get(exec.CommandContext(t.Context(), filepath.Join(dir, "values")).Output())(t)
	return strings.Fields(string(out))
}

// run compiles abi.c in a folder.
func run(t *testing.T, dir, source string, command ...string) {
	t.Helper()
	err := os.WriteFile(filepath.Join(dir, "abi.c"), []byte(source), 0o600)
	gcc := exec.CommandContext(t.Context(), command[0], command[1:]...)
	gcc.Dir = dir
	out, failed := gcc.CombinedOutput()
	if err := errors.Join(err, failed); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestOneDirection finds files of the host that need each other.
func TestOneDirection(t *testing.T) {
	t.Parallel()
	sources := must.Get(filepath.Glob("../*.[ch]"))(t)
	must.AtLeast(t, len(sources), 20, "sources")
	needs := map[string][]string{}
	for _, file := range sources {
		text := must.Get(os.ReadFile(file))(t)
		unit := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		for _, include := range regexp.MustCompile(`(?m)^#include "(\w+)\.h"`).FindAllStringSubmatch(string(text), -1) {
			if include[1] != unit {
				needs[unit] = append(needs[unit], include[1])
			}
		}
	}
	var visit func(unit string, path []string)
	visit = func(unit string, path []string) {
		if i := slices.Index(path, unit); i >= 0 {
			t.Fatalf("files need each other: %s", strings.Join(append(path[i:], unit), " -> "))
		}
		for _, next := range needs[unit] {
			visit(next, append(slices.Clone(path), unit))
		}
	}
	for unit := range needs {
		visit(unit, nil)
	}
}
