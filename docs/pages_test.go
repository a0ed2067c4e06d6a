package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weir/internal/check"
	"weir/internal/commandtest"
	"weir/internal/must"
)

// pages returns the pages that a newcomer reads.
func pages(t *testing.T) (files []string) {
	t.Helper()
	for _, pattern := range []string{"../*.md", "*.md", "../envoy/*.md", "../bench/*.md", "../bench/*/*.md"} {
		found := must.Get(filepath.Glob(pattern))(t)
		files = append(files, found...)
	}
	return files
}

var (
	fenced  = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	anyLink = regexp.MustCompile(`\]\(([^)\s]*)\)`)
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are those of a page's headings.
func anchors(text string) (slugs []string) {
	for _, found := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		slug := noSlug.ReplaceAllString(strings.ToLower(found[1]), "")
		slugs = append(slugs, strings.ReplaceAll(slug, " ", "-"))
	}
	return slugs
}

// TestLinks wants what every relative link leads to, and its anchor, to be there.
func TestLinks(t *testing.T) {
	checked := 0
	for _, page := range pages(t) {
		text := must.Text(t, page)
		for _, found := range anyLink.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			target, anchor, hasAnchor := strings.Cut(found[1], "#")
			if strings.Contains(target, ":") {
				continue
			}
			checked++
			file := page
			if target != "" {
				file = filepath.Join(filepath.Dir(page), target)
			}
			if info, err := os.Stat(file); err != nil {
				t.Errorf("%s: link to %s: %v", page, found[1], err)
			} else if hasAnchor && (info.IsDir() || !slices.Contains(anchors(must.Text(t, file)), anchor)) {
				t.Errorf("%s: link to %s: no such heading", page, found[1])
			}
		}
	}
	must.AtLeast(t, checked, 150, "links found")
}

// TestConfigurations has weir check's own code read every configuration that a page shows.
func TestConfigurations(t *testing.T) {
	checked := 0
	for _, page := range pages(t) {
		for i, sample := range fenced.FindAllStringSubmatch(must.Text(t, page), -1) {
			if sample[1] == "json" && strings.HasPrefix(sample[2], `"`) { // fields of a rule
				sample[2] = `{"rules": [{"name": "piece", "limits": [{"limit": 1, "window": "1m"}], "cost_on_response": "auto", ` + sample[2] + "}]}"
			}
			if sample[1] != "json" && sample[1] != "yaml" || !strings.Contains(sample[2], "rules") || !strings.Contains(sample[2], "limits") {
				continue
			}
			if strings.HasPrefix(sample[2], "# values.yaml\n") {
				continue // of the chart, which completes them: its own tests check what it renders
			}
			report := check.File("sample."+sample[1], []byte(sample[2]))
			must.AtLeast(t, report.Configurations, 1, "%s: sample %d: configurations", page, i)
			for _, f := range report.Findings {
				must.Equal(t, f.Warning, true, "%s: sample %d: %d:%d: %s: %s", page, i, f.Line, f.Column, f.Path, f.Problem)
			}
			checked++
		}
	}
	must.AtLeast(t, checked, 4, "samples found")
}

// TestPictures wants the pictures of the algorithms to be what these decide.
func TestPictures(t *testing.T) {
	cmd := exec.Command("go", "run", "./scripts/pictures", "-check")
	cmd.Dir = ".."
	commandtest.Run(t, cmd)
}

// inSample are the packages of which samples, and what is around them, name something.
var (
	inSample = []string{
		"bytes", "context", "encoding/json", "fmt", "io", "log", "net", "net/http", "os", "strings", "time", "google.golang.org/grpc",
		"google.golang.org/grpc/credentials/insecure", "google.golang.org/grpc/metadata", "google.golang.org/grpc/status",
		"google.golang.org/protobuf/types/known/emptypb", "weir/ratelimit", "weir/ratelimit/limitgrpc", "weir/ratelimit/limithttp",
	}
	made = regexp.MustCompile(`(?m)^([\w, ]+) :=`)
)

// then is what a sample's function does at its end with what the sample has made.
var then = map[string]string{
	"limit": "serve(limit(http.HandlerFunc(echo)))", "handler": "serve(http.HandlerFunc(handler))", "server": "call(ctx, server)",
}

// aroundSamples serves what a sample has made at the address of the second argument, and calls it if it is a gRPC server.
const aroundSamples = `
func use(all ...any) {
	for _, one := range all {
		if err, ok := one.(error); ok {
			log.Fatal(err)
		}
	}
}

func serve(handler http.Handler) { log.Fatal(http.ListenAndServe(os.Args[2], handler)) }

func echo(w http.ResponseWriter, r *http.Request) {
	_, err := io.Copy(io.Discard, r.Body)
	use(err, r.Header.Write(w))
}

func call(ctx context.Context, server *grpc.Server) {
	place := func(_ any, ctx context.Context, _ func(any) error, limited grpc.UnaryServerInterceptor) (any, error) {
		return limited(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/shop.Orders/Place"}, func(context.Context, any) (any, error) { return &emptypb.Empty{}, nil })
	}
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "shop.Orders", Methods: []grpc.MethodDesc{{MethodName: "Place", Handler: place}}}, nil)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	use(err)
	go server.Serve(listener)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	use(err)
	for _, user := range []string{"ann", "bob"} {
		err := conn.Invoke(metadata.AppendToOutgoingContext(ctx, "x-user", user), "/shop.Orders/Place", &emptypb.Empty{}, &emptypb.Empty{})
		fmt.Println(user, status.Code(err))
	}
}
`

// program builds a program of samples that are parts of one. Its first argument says which of them runs; it fails if the
// sample's last error is one.
func program(t *testing.T, samples []string) (file string) {
	t.Helper()
	imports, functions, cases := "", "", ""
	for i, sample := range samples {
		used, at := "ctx", ""
		for _, m := range made.FindAllStringSubmatch(sample, -1) {
			used += ", " + m[1]
			at += then[m[1]]
		}
		functions += fmt.Sprintf("func sample%d(ctx context.Context) {\n%s\nuse(%s)\n%s\n}\n\n", i, sample, used, at)
		cases += fmt.Sprintf("case \"%d\": sample%[1]d(context.Background())\n", i)
	}
	text := strings.ReplaceAll(functions, `"http://weir:9180"`, `os.Getenv("WEIR_BACKEND")`) + aroundSamples
	for _, name := range inSample {
		if strings.Contains(text, name[strings.LastIndex(name, "/")+1:]+".") {
			imports += fmt.Sprintf("\t%q\n", name)
		}
	}
	text = fmt.Sprintf("package main\n\nimport (\n%s)\n\nfunc main() {\nswitch os.Args[1] {\n%s}\n}\n\n%s", imports, cases, text)
	root, dir := must.Get(filepath.Abs(".."))(t), t.TempDir()
	overlay, file := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "program")
	replace := must.Get(json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, "docs", "sample", "sample.go"): file + ".go"}}))(t)
	must.OK(t, os.WriteFile(overlay, replace, 0o600))
	must.OK(t, os.WriteFile(file+".go", []byte(text), 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", file, "-overlay", overlay, "weir/docs/sample").CombinedOutput()
	must.OKf(t, err, "%s\n%s", out, text)
	return file
}

// goSamples are a text's samples of Go that are parts of a program.
func goSamples(text string) (samples []string) {
	for _, sample := range fenced.FindAllStringSubmatch(text, -1) {
		if sample[1] == "go" && !strings.HasPrefix(sample[2], "package ") {
			samples = append(samples, sample[2])
		}
	}
	return samples
}

// TestPrograms runs the samples of Go that are parts of a program. TestLibrary runs the whole ones, and TestCookbook the recipes.
func TestPrograms(t *testing.T) {
	t.Parallel()
	var samples []string
	for _, page := range pages(t) {
		if page != "cookbook.md" {
			samples = append(samples, goSamples(must.Text(t, page))...)
		}
	}
	if len(samples) == 0 {
		t.Fatal("no sample was found")
	}
	file := program(t, samples)
	for i, sample := range samples {
		cmd := exec.CommandContext(t.Context(), file, strconv.Itoa(i))
		cmd.Env = append(os.Environ(), "WEIR_BACKEND=http://127.0.0.1:1")
		out, err := cmd.CombinedOutput()
		must.Reportf(t, err, "%s\n%s", out, sample)
	}
}
