package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"weir/internal/server"
)

const completionHelp = `
It prints a script by which a shell completes commands, flags and their values. Namespaces and rules are
those of the backend, asked as by the other commands' --backend and --token.

  source <(weir completion bash)
  weir completion zsh >"${fpath[1]}/_weir"
  weir completion fish >~/.config/fish/completions/weir.fish
`

// shells are the scripts by shell. Each has weir itself say what fits; a colon alone asks the shell for files.
var shells = map[string]string{
	"bash": `_weir() {
	local line=$COMP_LINE now=${COMP_WORDS[COMP_CWORD]} word words=()
	for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do # which has a URL in pieces
		if [[ ${#words[@]} = 0 || $line = [[:space:]]* ]]; then words+=("$word"); else words[${#words[@]}-1]+=$word; fi
		line=${line#*"$word"}
	done
	local IFS=$'\n'
	COMPREPLY=($("${words[0]}" completion ` + fitting + ` "${words[@]:1}" 2>/dev/null | cut -f1))
	if [ "${COMPREPLY[0]}" = : ]; then
		COMPREPLY=($(compgen -f -- "$now"))
	fi
}
complete -o filenames -F _weir weir
`,
	// From a file in fpath the function is called by its file, and otherwise by compdef.
	"zsh": `#compdef weir

_weir() {
	local -a all=("${(@f)$("${(Q)words[1]}" completion ` + fitting + ` "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
	if [[ $all[1] == : ]]; then
		_files
		return
	fi
	all=("${(@)all//:/\\:}")
	all=("${(@)all/$'\t'/:}")
	_describe value all
}

if [ "$funcstack[1]" = _weir ]; then
	_weir "$@"
else
	compdef _weir weir
fi
`,
	"fish": `function __weir
	set -l typed (commandline -opc) (commandline -ct)
	set -l all ($typed[1] completion ` + fitting + ` $typed[2..] 2>/dev/null)
	if test "$all[1]" = :
		__fish_complete_path (commandline -ct)
	else
		printf '%s\n' $all
	end
end
complete -c weir -f -a '(__weir)'
`,
}

// fitting is the operand by which the scripts ask what fits the words that follow.
const fitting = "fitting"

func printCompletion(ctx context.Context, args []string, env environment) error {
	if len(args) > 1 && args[0] == fitting {
		_, err := io.WriteString(env.stdout, strings.Join(fit(ctx, args[1:], env), ""))
		return err
	}
	flags := flag.NewFlagSet("completion", flag.ContinueOnError)
	operands, err := parseMixed(flags, args, env, "SHELL")
	if err != nil {
		return err
	}
	if len(operands) != 1 || shells[operands[0]] == "" {
		return fmt.Errorf("%w: want bash, zsh or fish", errUsage)
	}
	_, err = io.WriteString(env.stdout, shells[operands[0]])
	return err
}

// completedFlag is a flag as a command's help has it. A value follows if argument is not empty.
type completedFlag struct{ name, argument, help string }

var (
	flagLine = regexp.MustCompile(`(?m)^  --([a-z0-9-]+)(?: (\S+))?\n((?:        .*\n)+)`)
	// listed finds the values that a flag's help lists, as in: log lines: text or json. Each may have an explanation.
	listed      = regexp.MustCompile(`: ([a-z_]+(?: \([^)]*\))?(?:(?:,| or) [a-z_]+(?: \([^)]*\))?)+)(?:;| \(default|$)`)
	explanation = regexp.MustCompile(` \([^)]*\)`)
)

func flagsOf(c *command) (all []completedFlag) {
	var help bytes.Buffer
	_ = c.run(context.Background(), []string{"--help"}, environment{stdin: strings.NewReader(""), stdout: &help, stderr: io.Discard, getenv: func(string) string { return "" }})
	for _, found := range flagLine.FindAllStringSubmatch(help.String(), -1) {
		all = append(all, completedFlag{found[1], found[2], strings.Join(strings.Fields(found[3]), " ")})
	}
	return all
}

// values are those that fit behind the flag.
func (f completedFlag) values() []string {
	if found := listed.FindStringSubmatch(f.help); found != nil {
		return strings.FieldsFunc(strings.ReplaceAll(explanation.ReplaceAllString(found[1], ""), " or ", ","), func(r rune) bool { return r == ',' || r == ' ' })
	}
	if strings.EqualFold(f.argument, "file") {
		return []string{":"}
	}
	return nil
}

// fit returns what may stand in place of the last of the words after weir: lines, each with what it means behind a tab, or a
// colon for files.
func fit(ctx context.Context, words []string, env environment) (lines []string) {
	now := words[len(words)-1]
	add := func(word, meaning string) {
		if strings.HasPrefix(word, now) || word == ":" {
			lines = append(lines, strings.TrimSuffix(word+"\t"+meaning, "\t")+"\n")
		}
	}
	addAll := func(words ...string) {
		for _, word := range words {
			add(word, "")
		}
	}
	if len(words) == 1 || words[0] == "help" && len(words) == 2 {
		for _, c := range commands() {
			add(c.name, c.summary)
		}
		add("help", "print the help of a command")
		return lines
	}
	c := find(words[0])
	if c == nil {
		return nil
	}
	flags := map[string]completedFlag{}
	for _, f := range flagsOf(c) {
		flags["--"+f.name] = f
		if strings.HasPrefix(now, "-") {
			add("--"+f.name, f.help)
		}
	}
	var operands []string
	var asked backendFlags
	given := flag.NewFlagSet(c.name, flag.ContinueOnError)
	asked.define(given)
	for i := 1; i < len(words)-1; i++ {
		f, known := flags[words[i]]
		switch {
		case !known:
			operands = append(operands, words[i])
		case f.argument != "" && i == len(words)-2:
			lines = nil
			addAll(f.values()...)
			return lines
		case f.argument != "":
			i++
			_ = given.Set(f.name, words[i]) // others do not matter here
		}
	}
	if !strings.HasPrefix(now, "-") {
		switch place, verbs := placeOf(c, operands); place {
		case "FILE", "LOG":
			add(":", "")
		case "SHELL":
			addAll("bash", "fish", "zsh")
		case "NAMESPACE":
			for _, n := range asked.namespaces(ctx, "", env) {
				add(n.Namespace, fmt.Sprintf("%d proxies", n.Nodes))
			}
		case "RULE":
			for _, n := range asked.namespaces(ctx, operands[len(operands)-1], env) {
				for _, rule := range n.Known {
					add(rule.Rule, rule.Mode)
				}
			}
		default:
			slices.Sort(verbs)
			addAll(slices.Compact(verbs)...)
		}
	}
	return lines
}

// placeOf returns the name that the command's usage gives to the operand that follows, or the verbs that may stand there.
func placeOf(c *command, operands []string) (place string, verbs []string) {
	usage, _, _ := strings.Cut(c.operands, "\n")
	var ways [][]string
	for way := range strings.SplitSeq(usage, " | ") {
		words := strings.Fields(way)
		if words[0] == strings.ToLower(words[0]) && words[0][0] != '-' {
			verbs = append(verbs, words[0])
		}
		ways = append(ways, words)
	}
	if len(ways) == 0 {
		return "", nil
	}
	way := ways[len(ways)-1] // a verb without operands of its own has those of the last
	if len(verbs) > 0 {
		if len(operands) == 0 {
			return "", verbs
		}
		for i, verb := range verbs {
			if verb == operands[0] && len(ways[i]) > 1 {
				way = ways[i]
			}
		}
	} else if strings.HasPrefix(way[0], "--") {
		way = way[2:]
	}
	if len(operands) < len(way) {
		place = way[len(operands)]
	} else if last := way[len(way)-1]; strings.Contains(last, "…") {
		place = last
	}
	return strings.Trim(place, "[]…"), nil
}

// namespaces returns those of which the backend knows, or the one that is asked for; none if it can't be asked at once.
func (f *backendFlags) namespaces(ctx context.Context, namespace string, env environment) []server.Namespace {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	query := url.Values{}
	if namespace != "" {
		query.Set("namespace", namespace)
	}
	var all server.Namespaces
	if errors.Join(f.resolve(env), f.call(ctx, http.MethodGet, server.NamespacesPath, query, nil, &all)) != nil {
		return nil
	}
	return all.Namespaces
}
