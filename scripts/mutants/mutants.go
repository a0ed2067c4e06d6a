package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mutant is a change of an operator, a number or a name in a file.
type mutant struct {
	file       string // relative to the module's folder
	start, end int    // of the replaced bytes
	text       string // the replacement
	// name describes the change: the file, the function, the source before and after. It has no
	// line numbers, so that it stays the same when other lines change. If two names in a file are
	// equal, the second ends with #2.
	name string
	line int
}

// swaps has the replacements of each operator: its boundary and its opposite.
var swaps = map[token.Token][]token.Token{
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.ADD: {token.SUB}, token.SUB: {token.ADD},
	token.MUL: {token.QUO}, token.QUO: {token.MUL}, token.REM: {token.MUL},
	token.SHL: {token.SHR}, token.SHR: {token.SHL},
	token.AND: {token.OR}, token.OR: {token.AND}, token.XOR: {token.AND}, token.AND_NOT: {token.AND},
	token.ADD_ASSIGN: {token.SUB_ASSIGN}, token.SUB_ASSIGN: {token.ADD_ASSIGN},
	token.MUL_ASSIGN: {token.QUO_ASSIGN}, token.QUO_ASSIGN: {token.MUL_ASSIGN},
	token.SHL_ASSIGN: {token.SHR_ASSIGN}, token.SHR_ASSIGN: {token.SHL_ASSIGN},
	token.AND_ASSIGN: {token.OR_ASSIGN}, token.OR_ASSIGN: {token.AND_ASSIGN},
	token.INC: {token.DEC}, token.DEC: {token.INC},
}

var names = map[string]string{"true": "false", "false": "true", "min": "max", "max": "min"}

// source is a file whose mutants are being listed.
type source struct {
	name    string
	content []byte
	file    *token.File
	mutants []mutant
	seen    map[string]int
}

// list returns all mutants of a file, in the order of the file. Some of them may not compile.
func list(name string, content []byte) ([]mutant, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, content, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	s := &source{name: name, content: content, file: files.File(file.FileStart), seen: map[string]int{}}
	ast.PreorderStack(file, nil, func(n ast.Node, above []ast.Node) bool {
		s.visit(n, above)
		return true
	})
	return s.mutants, nil
}

func (s *source) visit(n ast.Node, above []ast.Node) {
	operator := func(op token.Token, at token.Pos) {
		for _, other := range swaps[op] {
			s.add(n, above, at, op.String(), other.String())
		}
	}
	switch n := n.(type) {
	case *ast.BinaryExpr:
		operator(n.Op, n.OpPos)
	case *ast.AssignStmt:
		operator(n.Tok, n.TokPos)
	case *ast.IncDecStmt:
		operator(n.Tok, n.TokPos)
	case *ast.UnaryExpr:
		if n.Op == token.NOT || n.Op == token.SUB {
			s.add(n, above, n.OpPos, n.Op.String(), "")
		}
	case *ast.BasicLit:
		value, err := strconv.ParseUint(n.Value, 0, 63)
		if n.Kind != token.INT || err != nil || constant(above) {
			return
		}
		s.add(above[len(above)-1], above, n.Pos(), n.Value, strconv.FormatUint(value+1, 10))
		if value > 0 {
			s.add(above[len(above)-1], above, n.Pos(), n.Value, strconv.FormatUint(value-1, 10))
		}
	case *ast.Ident:
		if other := names[n.Name]; other != "" {
			s.add(above[len(above)-1], above, n.Pos(), n.Name, other)
		}
	}
}

// constant reports whether a number belongs to a constant or to an array's type. Such a number is a
// choice, and another may be as good.
func constant(above []ast.Node) bool {
	return slices.ContainsFunc(above, func(n ast.Node) bool {
		decl, ok := n.(*ast.GenDecl)
		_, array := n.(*ast.ArrayType)
		return ok && decl.Tok == token.CONST || array
	})
}

// add adds the mutant that has other in place of old. Its name has the line of the node shown that
// changes.
func (s *source) add(shown ast.Node, above []ast.Node, at token.Pos, old, other string) {
	start := s.file.Offset(at)
	end := start + len(old)
	from, to := s.file.Offset(shown.Pos()), s.file.Offset(shown.End())
	from = max(from, bytes.LastIndexByte(s.content[:start], '\n')+1)
	if newline := bytes.IndexByte(s.content[start:], '\n'); newline >= 0 {
		to = min(to, start+newline)
	}
	before, after := string(s.content[from:start]), string(s.content[end:to])
	name := fmt.Sprintf("%s %s: %s → %s", s.name, function(above), words(before+old+after), words(before+other+after))
	if s.seen[name]++; s.seen[name] > 1 {
		name += " #" + strconv.Itoa(s.seen[name])
	}
	s.mutants = append(s.mutants, mutant{file: s.name, start: start, end: end, text: other, name: name, line: s.file.Line(at)})
}

func words(text string) string { return strings.Join(strings.Fields(text), " ") }

// function returns the name of the function around a node, with its receiver's type.
func function(above []ast.Node) string {
	for _, n := range above {
		decl, ok := n.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if decl.Recv == nil {
			return decl.Name.Name
		}
		return strings.TrimPrefix(types.ExprString(decl.Recv.List[0].Type), "*") + "." + decl.Name.Name
	}
	return "package"
}

// apply returns the file's content with the mutant's change.
func (m *mutant) apply(content []byte) []byte {
	return slices.Concat(content[:m.start], []byte(m.text), content[m.end:])
}

// listAll lists the mutants of files, and of all files in folders except tests.
func listAll(paths []string) (mutants []mutant, err error) {
	for _, path := range paths {
		path = filepath.Clean(path)
		files := []string{path}
		if !strings.HasSuffix(path, ".go") {
			if files, err = filepath.Glob(filepath.Join(path, "*.go")); err != nil {
				return nil, err
			}
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("%s has no Go files", path)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			content, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			more, err := list(filepath.ToSlash(file), content)
			if err != nil {
				return nil, err
			}
			mutants = append(mutants, more...)
		}
	}
	return mutants, nil
}

// compiler finds the mutants that compile. It reads each package once.
type compiler struct {
	files    *token.FileSet
	importer types.Importer
	parsed   map[string]map[string]*ast.File // by folder and file
}

func newCompiler() *compiler {
	files := token.NewFileSet()
	return &compiler{files: files, importer: importer.ForCompiler(files, "source", nil), parsed: map[string]map[string]*ast.File{}}
}

func (c *compiler) compiles(m *mutant) (bool, error) {
	folder := filepath.Dir(m.file)
	if c.parsed[folder] == nil {
		c.parsed[folder] = map[string]*ast.File{}
		names, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			return false, err
		}
		for _, name := range names {
			if !strings.HasSuffix(name, "_test.go") {
				if c.parsed[folder][filepath.ToSlash(name)], err = parser.ParseFile(c.files, name, nil, parser.SkipObjectResolution); err != nil {
					return false, err
				}
			}
		}
	}
	content, err := os.ReadFile(m.file)
	if err != nil {
		return false, err
	}
	var all []*ast.File
	for name, file := range c.parsed[folder] {
		if name == m.file {
			if file, err = parser.ParseFile(c.files, name, m.apply(content), parser.SkipObjectResolution); err != nil {
				return false, nil // such as a number too large for its base
			}
		}
		all = append(all, file)
	}
	config := types.Config{Importer: c.importer, Error: func(error) {}}
	_, err = config.Check(folder, c.files, all, nil)
	return err == nil, nil
}
