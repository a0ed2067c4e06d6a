package check

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"weir/config"
	"weir/internal/fields"
)

// Finding is a mistake or a warning.
type Finding struct {
	// Line and Column count from 1; columns count characters. They are 0 if there is no place.
	Line, Column int
	// Warning means that the plugin accepts the configuration all the same, or would accept what weir compile makes of it.
	Warning bool
	// Path leads to the value in the plugin's configuration, such as rules[2].limits[0].window. It
	// is empty for the configuration as a whole, and for the document around it.
	Path string
	// Problem says what would be right, and what was found.
	Problem string

	at int
}

// Report has the findings about a file.
type Report struct {
	// Configurations is how many configurations of Weir the file has.
	Configurations int
	// Findings are in the order of the file.
	Findings []Finding
	// Accepted are the configurations without mistakes, in the order of the file.
	Accepted []Configuration
}

// Configuration is a configuration that the plugin accepts.
type Configuration struct {
	// Line and Column are where it begins; they count as those of a [Finding].
	Line, Column int
	// Document is the JSON that the plugin gets.
	Document []byte
	// Config is the parsed document.
	Config *config.Config
}

// Refused reports whether the file has mistakes.
func (r *Report) Refused() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return !f.Warning })
}

// Text is a file to be read.
type Text struct {
	Name    string
	Content []byte
}

// Reader checks files of another program together, and returns a report of each. It returns nil for others. found is as for
// [Found].
type Reader func(files []Text, found bool) []*Report

// File checks a file. The name says whether a file that begins like JSON is YAML. Readers go first,
// also for the files in a ConfigMap.
func File(name string, content []byte, readers ...Reader) *Report {
	return check(checker{file: content, places: placesOf(content), readers: readers}, name)
}

func check(c checker, name string) *Report {
	content := c.file
	if reports := c.together(c.found, Text{name, content}); reports != nil {
		return reports[0].at(c.places)
	}
	trimmed := bytes.TrimLeft(content, " \t\r\n")
	extension := strings.ToLower(filepath.Ext(name))
	switch {
	case !utf8.Valid(content) && (c.found || content[0] != '\n'):
		c.notText()
	case !utf8.Valid(content), bytes.HasPrefix(content, []byte("\n")) && bytes.IndexByte(content, 0x12) >= 0:
		// A Struct in protobuf's wire format.
		c.configuration(&document{text: content, from: func(int) int { return 0 }}, bodiesUnknown)
	case len(trimmed) == 0, bytes.IndexByte([]byte("{["), trimmed[0]) >= 0 && extension != ".yaml" && extension != ".yml":
		c.json()
	default:
		c.yaml()
	}
	slices.SortStableFunc(c.report.Findings, func(a, b Finding) int { return cmp.Compare(a.at, b.at) })
	return &c.report
}

// together has readers check files. It returns nil if they are for none of them.
func (c *checker) together(found bool, files ...Text) []*Report {
	for _, read := range c.readers {
		if reports := read(files, found); reports != nil {
			return reports
		}
	}
	return nil
}

// at sets the offsets of findings that have lines and columns.
func (r *Report) at(p *places) *Report {
	for i := range r.Findings {
		f := &r.Findings[i]
		f.at = p.offset(f.Line, f.Column)
	}
	return r
}

type checker struct {
	file   []byte
	places *places
	// found means that nobody named the file: it may belong to another program.
	found bool
	// mapped means that it is in a ConfigMap.
	mapped  bool
	readers []Reader
	report  Report
	tokens  []tokens // tokens that resources in the file verify
	// gateways are the resources of Envoy Gateway in the file.
	gateways *gateways
	mesh     *mesh
	looked   int // how many values of filters were compared with the rules' selectors
	marking  []marking
}

// notText tells of the first byte that is of no character. A file that nobody has named may be no text.
func (c *checker) notText() {
	if c.found && !meant(c.file) {
		return
	}
	at := 0
	for {
		r, size := utf8.DecodeRune(c.file[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	c.add(mistake{at: at, problem: fmt.Sprintf("want UTF-8, got the byte %#02x", c.file[at])}, false)
}

func (c *checker) json() {
	if json.Valid(c.file) {
		root := readJSON(c.file)
		if !isConfiguration(root) {
			c.read([]*node{root})
			c.outer(root, false)
			return
		}
		if c.found && !evident(root) {
			return
		}
	} else if c.found && !meant(c.file) {
		return
	}
	c.configuration(asFile(c.file, 0, len(c.file)), bodiesUnknown)
}

func (c *checker) yaml() {
	documents, err := readYAML(c.file, c.places)
	c.read(documents)
	for _, root := range documents {
		switch {
		case len(documents) > 1 && root.kind == kindScalar && root.text == "null":
			// There may be nothing but comments between two lines of ---.
		case c.found && isConfiguration(root) && !evident(root):
		case isConfiguration(root):
			c.configuration(asJSON(root, ours), bodiesUnknown)
		default:
			c.outer(root, true)
		}
	}
	switch {
	case c.found && (err == nil || !meant(c.file)):
	case err != nil:
		problem, at := mistakeOf(err, c.places)
		c.add(mistake{at: at, problem: problem}, false)
	case len(documents) == 0:
		c.configuration(asFile(c.file, 0, 0), bodiesUnknown)
	}
}

// read reads the resources that say what is around the plugins of others.
func (c *checker) read(documents []*node) {
	c.tokens, c.gateways, c.mesh = readResources(documents), readGateways(documents), readMesh(documents)
}

// mostNamed is how many clusters are named where another is wanted. A mesh may have thousands.
const mostNamed = 12

// outer checks a document that contains configurations.
func (c *checker) outer(root *node, yaml bool) {
	resource := root.get("apiVersion") != nil && root.get("kind") != nil
	f := finder{file: c.file, yaml: yaml, resource: resource, seen: map[*node]bool{}, filters: filters{tokens: c.tokens}, gateways: c.gateways, mesh: c.mesh}
	f.walk(root)
	c.report.Configurations += len(f.mistakes)
	for _, m := range append(f.mistakes, f.refused...) {
		c.add(m, false)
	}
	for _, m := range f.warnings {
		c.add(m, true)
	}
	for _, data := range f.configMaps {
		c.configMap(data)
	}
	known := clusters(root)
	var parsed []machine
	for _, p := range f.plugins {
		if p.unlimited != nil {
			c.add(mistake{p.unlimited.at, p.unlimitedPath, "requests pass without limits once the plugin has failed"}, true)
		}
		read := c.configuration(p.document, p.bodies)
		if read == nil {
			continue
		}
		document := readJSON(p.document.text)
		c.readDifferently(&p.filters, read, func(path, problem string) {
			c.add(mistake{p.document.from(locate(document, path)), path, problem}, true)
		})
		if cluster := read.Backend.Cluster; known != nil && cluster != "" && !known[cluster] {
			at := p.document.from(locate(document, "backend.cluster"))
			has := list(slices.Sorted(maps.Keys(known)))
			if len(known) > mostNamed {
				has = strconv.Itoa(len(known)) + " others"
			}
			problem := "want a cluster of this Envoy, which has " + has + ", got " + strconv.Quote(short(cluster))
			c.add(mistake{at, "backend.cluster", problem}, false)
		} else if problem := c.mesh.lacks(cluster, p.resource, c.places); problem != "" {
			c.add(mistake{p.document.from(locate(document, "backend.cluster")), "backend.cluster", problem}, true)
		}
		c.marks(&p, read, document)
		if p.vm != nil {
			parsed = append(parsed, machine{read, p.vm})
		}
	}
	c.machines(parsed)
}

// machine is a configuration, and the node that names its virtual machine.
type machine struct {
	config *config.Config
	vm     *node
}

// machines warns about plugins that count the same rule separately. Counters are in shared data,
// which belongs to a vm_id.
func (c *checker) machines(all []machine) {
	first := map[[2]string]machine{} // by namespace and rule
	for _, this := range all {
		for i := range this.config.Rules {
			rule := [2]string{this.config.Namespace, this.config.Rules[i].Name}
			before, ok := first[rule]
			if !ok {
				first[rule] = this
			} else if this.vm.string() != before.vm.string() {
				line, _ := c.places.position(before.vm.at)
				c.add(mistake{this.vm.at, "vm_id", "counts rule " + rule[1] + " of namespace " + rule[0] + " apart from line " +
					strconv.Itoa(line) + ", which has another vm_id: to share counters within a proxy, both need the same vm_id"}, true)
				break
			}
		}
	}
}

// configuration checks a configuration, and returns nil if it has mistakes. bodies says why the
// plugin might not get the bodies that its rules read; it is empty if it does.
func (c *checker) configuration(d *document, bodies string) *config.Config {
	c.report.Configurations++
	d = compiled(d)
	known := map[int]*mistake{}
	for i := range d.mistakes {
		known[d.mistakes[i].at] = &d.mistakes[i]
	}
	parsed, err := config.Parse(d.text)
	var mistakes config.Errors
	errors.As(err, &mistakes)
	for _, e := range mistakes {
		if c.mapped && e.Path == "rules" && !bytes.Contains(d.text, []byte(`"rules"`)) && !bytes.Contains(d.text, []byte(`"namespace"`)) {
			continue // weir controller reads it, and policies have the rules
		}
		at := d.from(e.At)
		if m := known[at]; m != nil {
			// A value that JSON lacks is written as null; with aliases, more than once.
			m.path = cmp.Or(m.path, e.Path)
			continue
		}
		problem := hinted(withoutPlace(e.Problem), e, d.text)
		if problem != e.Problem && e.Path == "" {
			problem += syntaxHint(d.text, e.At)
		}
		switch {
		case d.envoys[at] && d.of == kubernetesYAML:
			problem += ", which Kubernetes makes of " + short(c.word(at)) + " in YAML: want quotes around it"
		case d.envoys[at]:
			problem += ", which Envoy makes of " + short(c.word(at)) + " in YAML; in a " + typeStringValue + " it stays as it is"
		}
		c.add(mistake{at, e.Path, problem}, false)
	}
	for _, m := range d.mistakes {
		c.add(m, false)
	}
	for _, m := range d.expressed {
		c.add(m, true)
	}
	if err != nil || len(d.mistakes) > 0 {
		return nil
	}
	line, column := c.places.position(d.from(0))
	c.report.Accepted = append(c.report.Accepted, Configuration{line, column, d.text, parsed})
	root := readJSON(d.text)
	for _, w := range config.Warnings(parsed) {
		c.add(mistake{d.from(locate(root, w.Path)), w.Path, w.Problem}, true)
	}
	for i, rule := range root.get("rules").elements() {
		for j, limit := range rule.get("limits").elements() {
			if n := limit.get("window"); n != nil && n.kind == kindScalar {
				if problem := inMilliseconds(n.text); problem != "" {
					c.add(mistake{d.from(n.at), fmt.Sprintf("rules[%d].limits[%d].window", i, j), problem}, true)
				}
			}
		}
	}
	if bodies != "" {
		for i := range parsed.Rules {
			ofBodies("rules["+strconv.Itoa(i)+"]", &parsed.Rules[i], func(path, unread string) {
				c.add(mistake{d.from(locate(root, path)), path, strings.Replace(bodies, defaultTaken, unread, 1)}, true)
			})
		}
	}
	return parsed
}

// ofBodies calls found with each path in a rule that reads a request's body, and with the effect on
// requests whose body can't be read.
func ofBodies(path string, rule *config.Rule, found func(path, unread string)) {
	if b := rule.CostFromBody; b != nil {
		field := ".cost"
		if rule.Reserve {
			field = ".reserve"
		}
		found(path+field+".request_json", unreadBody[b.Unread])
	}
	ofMatch := func(path string, of *config.Selector, _ *config.StringMatch) {
		if of.Kind == config.SelectBody {
			found(path, nothingFound)
		}
	}
	eachCondition(path, rule, ofMatch)
	for i := range rule.Key {
		if rule.Key[i].Kind == config.SelectBody {
			found(path+".key["+strconv.Itoa(i)+"].request_json", defaultTaken)
		}
	}
	if by := rule.Overrides.By; by != nil && by.Kind == config.SelectBody {
		found(path+".overrides.by.request_json", defaultTaken)
	}
	if c := rule.Classes; c != nil && c.By.Kind == config.SelectBody {
		found(path+".classes.by.request_json", defaultTaken)
	}
	if rule.Ask >= config.AskAlways {
		found(path+".ask_for_usage", noneAsks)
	}
	if rule.Response.Preset == fields.JSONRPC {
		found(path+".response.preset", noID)
	}
}

// eachCondition visits the conditions of a rule's match and exceptions.
func eachCondition(path string, rule *config.Rule, visit func(string, *config.Selector, *config.StringMatch)) {
	rule.Match.Each(path+".match", visit)
	for i := range rule.Except {
		rule.Except[i].Each(path+".except["+strconv.Itoa(i)+"]", visit)
	}
}

// Effects of a body that can't be read, and the reasons.
const (
	defaultTaken  = "the default is taken"
	nothingFound  = "nothing is found"
	noneAsks      = "no stream is made to ask"
	noID          = "refusals have the id null"
	bringsBodies  = "allow_on_headers_stop_iteration: true in the plugin's configuration of Envoy 1.35 or later"
	bodiesUnknown = "needs " + bringsBodies + ", or else " + defaultTaken
	bodiesKept    = defaultTaken + ": want " + bringsBodies
	// bodiesUnpatched is followed by the listener or Gateway.
	bodiesUnpatched = defaultTaken + ": want an EnvoyPatchPolicy that adds allow_on_headers_stop_iteration: true for"
	bodiesOfPolicy  = defaultTaken + " at Gateways of Istio, where weir controller's plugin gets no bodies"
	bodiesNever     = defaultTaken + ": it needs " + bringsBodies + ", which this resource can't have, but an EnvoyFilter or EnvoyPatchPolicy"
)

var unreadBody = [...]string{
	config.UnreadDefault: defaultTaken, config.UnreadMost: "each request with a body takes most", config.UnreadRefuse: "each request with a body is refused",
}

// word returns the unquoted scalar at an offset of the file.
func (c *checker) word(at int) string {
	rest := c.file[at:]
	if end := bytes.IndexAny(rest, " \t\r\n,]}"); end >= 0 {
		rest = rest[:end]
	}
	return string(rest)
}

func (c *checker) add(m mistake, warning bool) {
	line, column := c.places.position(m.at)
	c.report.Findings = append(c.report.Findings, Finding{
		Line: line, Column: column, Warning: warning, Path: m.path, Problem: m.problem, at: m.at,
	})
}

// withoutPlace removes the line and column from a problem: they are places in a document that may
// be part of another document.
func withoutPlace(problem string) string {
	const head = "not JSON"
	if rest, ok := strings.CutPrefix(problem, head+" at line "); ok {
		if _, rest, ok = strings.Cut(rest, ": "); ok {
			return head + ": " + rest
		}
	}
	return problem
}

// locate returns the offset of the value at a path, or of the last value on the way that exists.
func locate(n *node, path string) int {
	for path != "" {
		var next *node
		if name, err := strconv.QuotedPrefix(path[1:]); path[0] == '[' && err == nil {
			path = strings.TrimPrefix(path[1+len(name):], "]")
			name, _ = strconv.Unquote(name) // a quoted string, as QuotedPrefix has found
			next = n.get(name)
		} else if index, rest, ok := strings.Cut(strings.TrimPrefix(path, "["), "]"); path[0] == '[' && ok {
			if i, err := strconv.Atoi(index); err == nil && i < len(n.elements()) {
				next = n.children[i]
			}
			path = rest
		} else {
			path = strings.TrimPrefix(path, ".")
			end := strings.IndexAny(path+".", ".[")
			next = n.get(path[:end])
			path = path[end:]
		}
		if next == nil {
			break
		}
		n = next
	}
	return n.at
}

// list writes "a, b or c".
func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// Found checks a file that was found in a folder. A file without rules with limits, and without a
// module of Weir's, belongs to another program: Found reports nothing about it, nor about templates
// of documents.
func Found(name string, content []byte, readers ...Reader) *Report {
	return check(checker{file: content, places: placesOf(content), found: true, readers: readers}, name)
}

// evident reports whether a document is certainly a configuration of Weir's.
func evident(n *node) bool {
	return n.get("sync_rate") != nil || n.get("on_backend_failure") != nil || limited(n)
}

// limited reports whether a document has rules with limits.
func limited(n *node) bool {
	return slices.ContainsFunc(n.get("rules").elements(), func(rule *node) bool { return rule.get("limits") != nil })
}

// meant reports whether an unreadable text was meant to contain a configuration.
func meant(text []byte) bool {
	has := func(word string) bool { return bytes.Contains(text, []byte(word)) }
	return !has("{{") && (has("weir") || has("rules") && has("limits"))
}

// configMap checks the values in a ConfigMap's data, each as a file named by its key. Readers get those of several together first.
func (c *checker) configMap(data *node) {
	var values []*node
	var files []Text
	for i, value := range data.children {
		if value.kind == kindString {
			values, files = append(values, value), append(files, Text{data.names[i].text, []byte(value.text)})
		}
	}
	together := c.together(true, files...)
	for i, value := range values {
		content := files[i].Content
		inner := checker{file: content, places: placesOf(content), found: true, mapped: true, readers: c.readers}
		var report *Report
		if together != nil {
			report = together[i].at(inner.places)
		} else {
			report = check(inner, files[i].Name)
		}
		places := align(c.file, value)
		from := func(offset int) int { return places[min(offset, len(places)-1)] }
		c.report.Configurations += report.Configurations
		for _, f := range report.Findings {
			c.add(mistake{from(f.at), f.Path, f.Problem}, f.Warning)
		}
		for _, a := range report.Accepted {
			a.Line, a.Column = c.places.position(from(inner.places.offset(a.Line, a.Column)))
			c.report.Accepted = append(c.report.Accepted, a)
		}
	}
}
