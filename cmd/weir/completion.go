package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"strings"
)

const completionHelp = `
It prints a script by which a shell completes commands and flags.

  source <(weir completion bash)
  weir completion zsh >"${fpath[1]}/_weir"
  weir completion fish >~/.config/fish/completions/weir.fish
`

// shells write the completion of all commands, by shell.
var shells = map[string]func(w io.Writer, all []completed){"bash": completeBash, "zsh": completeZsh, "fish": completeFish}

// completed is a command to complete.
type completed struct {
	name, summary string
	flags         []completedFlag
}

type completedFlag struct {
	name string
	// argument means that a value follows; values are its possible values, if there are few.
	argument bool
	values   []string
}

// printCompletion runs weir completion.
func printCompletion(_ context.Context, args []string, env environment) error {
	flags := flag.NewFlagSet("completion", flag.ContinueOnError)
	operands, err := parseMixed(flags, args, env, "SHELL")
	if err != nil {
		return err
	}
	if len(operands) != 1 || shells[operands[0]] == nil {
		return fmt.Errorf("%w: want bash, zsh or fish", errUsage)
	}
	all, err := completions()
	if err != nil {
		return err
	}
	var script bytes.Buffer
	shells[operands[0]](&script, all)
	_, err = env.stdout.Write(script.Bytes())
	return err
}

var (
	flagLine = regexp.MustCompile(`(?m)^  --([a-z0-9-]+)( \S+)?\n((?:        .*\n)+)`)
	// listed finds the values that a flag's help lists, as in: log lines as text or json.
	listed = regexp.MustCompile(`(?:from this level on: debug, info, warn or error|log lines as text or json|print as text, json or github)`)
	choice = regexp.MustCompile(`\b(?:debug|info|warn|error|text|json|github)\b`)
)

// completions returns all commands, from their help texts.
func completions() (all []completed, err error) {
	for _, c := range commands() {
		var help bytes.Buffer
		err := c.run(context.Background(), []string{"--help"}, environment{stdin: strings.NewReader(""), stdout: &help, stderr: io.Discard, getenv: func(string) string { return "" }})
		if err != nil && !errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		command := completed{name: c.name, summary: c.summary}
		for _, found := range flagLine.FindAllStringSubmatch(help.String(), -1) {
			f := completedFlag{name: found[1], argument: found[2] != ""}
			if list := listed.FindString(strings.Join(strings.Fields(found[3]), " ")); list != "" {
				f.values = choice.FindAllString(list, -1)
			}
			command.flags = append(command.flags, f)
		}
		all = append(all, command)
	}
	return append(all, completed{name: "help", summary: "say what a command does"}), nil
}

func names(all []completed) (list []string) {
	for _, c := range all {
		list = append(list, c.name)
	}
	return list
}

func completeBash(w io.Writer, all []completed) {
	fmt.Fprintf(w, `_weir() {
	local now=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} flags=
	COMPREPLY=()
	if [ "$COMP_CWORD" -eq 1 ]; then
		COMPREPLY=($(compgen -W "%s" -- "$now"))
		return
	fi
	case ${COMP_WORDS[1]}:$before in
`, strings.Join(names(all), " "))
	for _, c := range all {
		for _, f := range c.flags {
			if f.values != nil {
				fmt.Fprintf(w, "\t%s:--%s) COMPREPLY=($(compgen -W \"%s\" -- \"$now\")); return ;;\n", c.name, f.name, strings.Join(f.values, " "))
			}
		}
	}
	fmt.Fprintf(w, "\thelp:*) COMPREPLY=($(compgen -W \"%s\" -- \"$now\")); return ;;\n", strings.Join(names(all), " "))
	fmt.Fprintf(w, "\tcompletion:*) COMPREPLY=($(compgen -W \"bash fish zsh\" -- \"$now\")); return ;;\n")
	fmt.Fprint(w, "\tesac\n\tcase ${COMP_WORDS[1]} in\n")
	for _, c := range all {
		var list []string
		for _, f := range c.flags {
			list = append(list, "--"+f.name)
		}
		fmt.Fprintf(w, "\t%s) flags=\"%s\" ;;\n", c.name, strings.Join(list, " "))
	}
	fmt.Fprint(w, `	esac
	case $now in
	-*) COMPREPLY=($(compgen -W "$flags" -- "$now")) ;;
	*) COMPREPLY=($(compgen -f -- "$now")) ;;
	esac
}
complete -o filenames -F _weir weir
`)
}

// inZsh returns a text between single quotes, with colons and brackets escaped.
func inZsh(text string) string {
	return strings.NewReplacer("'", `'\''`, ":", `\:`, "[", `\[`, "]", `\]`).Replace(text)
}

func completeZsh(w io.Writer, all []completed) {
	fmt.Fprint(w, "#compdef weir\n\n_weir() {\n\tif (( CURRENT == 2 )); then\n\t\tlocal -a all=(\n")
	for _, c := range all {
		fmt.Fprintf(w, "\t\t\t'%s:%s'\n", c.name, inZsh(c.summary))
	}
	fmt.Fprint(w, "\t\t)\n\t\t_describe command all\n\t\treturn\n\tfi\n\tlocal command=$words[2]\n\tshift words\n\t(( CURRENT-- ))\n\tcase $command in\n")
	for _, c := range all {
		fmt.Fprintf(w, "\t%s)\n\t\t_arguments", c.name)
		for _, f := range c.flags {
			switch {
			case f.values != nil:
				fmt.Fprintf(w, " \\\n\t\t\t'--%s:value:(%s)'", f.name, strings.Join(f.values, " "))
			case f.argument:
				fmt.Fprintf(w, " \\\n\t\t\t'--%s:value:_files'", f.name)
			default:
				fmt.Fprintf(w, " \\\n\t\t\t'--%s'", f.name)
			}
		}
		switch c.name {
		case "help":
			fmt.Fprintf(w, " \\\n\t\t\t'1:command:(%s)'", strings.Join(names(all), " "))
		case "completion":
			fmt.Fprint(w, " \\\n\t\t\t'1:shell:(bash fish zsh)'")
		default:
			fmt.Fprint(w, " \\\n\t\t\t'*:file:_files'")
		}
		fmt.Fprint(w, "\n\t\t;;\n")
	}
	// From a file in fpath the function is called by its file, and otherwise by compdef.
	fmt.Fprint(w, "\tesac\n}\n\nif [ \"$funcstack[1]\" = _weir ]; then\n\t_weir \"$@\"\nelse\n\tcompdef _weir weir\nfi\n")
}

func completeFish(w io.Writer, all []completed) {
	quote := strings.NewReplacer(`\`, `\\`, "'", `\'`)
	for _, c := range all {
		fmt.Fprintf(w, "complete -c weir -f -n __fish_use_subcommand -a %s -d '%s'\n", c.name, quote.Replace(c.summary))
		for _, f := range c.flags {
			fmt.Fprintf(w, "complete -c weir -n '__fish_seen_subcommand_from %s' -l %s", c.name, f.name)
			switch {
			case f.values != nil:
				fmt.Fprintf(w, " -x -a '%s'", strings.Join(f.values, " "))
			case f.argument:
				fmt.Fprint(w, " -r -F")
			}
			fmt.Fprintln(w)
		}
	}
	fmt.Fprintln(w, "complete -c weir -f -n '__fish_seen_subcommand_from completion' -a 'bash fish zsh'")
	fmt.Fprintf(w, "complete -c weir -f -n '__fish_seen_subcommand_from help' -a '%s'\n", strings.Join(names(all), " "))
}
