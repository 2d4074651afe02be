// Command dashboards makes the dashboards of deploy/grafana and the rules and alerts of deploy/prometheus. Run it from
// the root of the checkout after a change here or of a metric's name:
//
//	go run ./integration/cmd/dashboards
//
// A test checks that the committed files are the ones that it makes. Tests of cmd/gradproxy/internal/site evaluate
// every expression in them over a real run.
package main

import (
	"slices"

	"github.com/gradproxy/gradproxy/integration/cmd/internal/program"
)

func main() { program.Write("dashboards", func(string) (map[string][]byte, error) { return render() }) }

// render returns the contents of all files that this command makes, by their paths below the root.
func render() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, b := range []*board{overview(), links(), coding(), process()} {
		text, err := b.json()
		if err != nil {
			return nil, err
		}
		files["deploy/grafana/"+b.uid+".json"] = text
	}
	for name, groups := range map[string][]group{"rules": recorded(), "alerts": alerts()} {
		text, err := writeRules(groups)
		if err != nil {
			return nil, err
		}
		files["deploy/prometheus/"+name+".yml"] = text
	}
	return files, nil
}

// instances narrows a metric to the proxies and peers that the reader of a dashboard has chosen.
const instances = `instance=~"$instance"`

const peers = instances + `,peer=~"$peer"`

// metric writes a metric's selector.
func metric(name string, matchers ...string) string {
	matchers = slices.DeleteFunc(matchers, func(m string) bool { return m == "" })
	text := "gradproxy_" + name
	for i, m := range matchers {
		if i == 0 {
			text += "{"
		} else {
			text += ","
		}
		text += m
	}
	if len(matchers) > 0 {
		text += "}"
	}
	return text
}
