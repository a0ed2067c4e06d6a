package scripts_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"go.yaml.in/yaml/v4"
)

// TestWorkflows wants every workflow to be one, its actions to have versions, and make to have the targets that they name.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../.github/workflows/*.yml")
	if err != nil || len(files) != 4 {
		t.Fatalf("%v, %v", files, err)
	}
	target := regexp.MustCompile(`make (?:-\S+ )*([a-z-]+)`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var workflow struct {
			Name string
			On   any
			// Permissions bound what a step's code may do with the repository.
			Permissions map[string]string
			Jobs        map[string]struct {
				RunsOn  string `yaml:"runs-on"`
				Timeout int    `yaml:"timeout-minutes"`
				Steps   []struct{ Uses, Run string }
			}
		}
		if err := yaml.Unmarshal(text, &workflow); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if workflow.Name == "" || workflow.On == nil || workflow.Permissions["contents"] == "" || len(workflow.Jobs) == 0 {
			t.Errorf("%s: %+v", file, workflow)
		}
		for name, job := range workflow.Jobs {
			if job.RunsOn == "" || job.Timeout == 0 || len(job.Steps) < 3 {
				t.Errorf("%s: %s: %+v", file, name, job)
			}
			for _, step := range job.Steps {
				if step.Uses != "" && !regexp.MustCompile(`^[a-z-]+/[a-z-]+@v\d+$`).MatchString(step.Uses) {
					t.Errorf("%s: %s: %q has no version", file, name, step.Uses)
				}
				for _, named := range target.FindAllStringSubmatch(step.Run, -1) {
					if !regexp.MustCompile(`(?m)^` + named[1] + `:`).Match(makefile) {
						t.Errorf("%s: %s: make has no target %s", file, name, named[1])
					}
				}
			}
		}
	}
}
