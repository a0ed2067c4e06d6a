// Command accuracy measures how far the sliding window counter and sub-buckets are from a true
// sliding log, on generated traffic. It prints tables, and updates README.md, the plots and the
// tests' table in its folder. With -check it writes nothing, and fails if they are out of date.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"weir/bench/page"
)

func main() {
	dir := flag.String("dir", filepath.Join("bench", "accuracy"), "folder of README.md and the plots")
	check := flag.Bool("check", false, "write nothing; fail if what is in the folder is out of date")
	flag.Parse()
	if err := run(*dir, *check); err != nil {
		fmt.Fprintln(os.Stderr, "accuracy:", err)
		os.Exit(1)
	}
}

func run(dir string, check bool) error {
	full := measure(full()...)
	fmt.Print(full)
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		return err
	}
	files, err := full.plots()
	if err != nil {
		return err
	}
	if files["README.md"], err = page.WithTables(readme, full.String()); err != nil {
		return err
	}
	files[quickTables] = []byte(measure(quick()).String())
	return page.Keep(dir, files, check, "go run ./bench/accuracy")
}

// quickTables is the file with the tables of the quick study.
const quickTables = "testdata/quick.txt"
