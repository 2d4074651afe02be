package wan

import (
	"embed"
	"slices"
	"strings"
)

//go:embed ready/*.yaml
var readyFiles embed.FS

// Ready returns the file of the ready topology of that name.
func Ready(name string) (text []byte, ok bool) {
	text, err := readyFiles.ReadFile("ready/" + name + ".yaml")
	return text, err == nil
}

// ReadyNames lists the ready topologies.
func ReadyNames() (names []string) {
	entries, _ := readyFiles.ReadDir("ready") // it is compiled in
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	slices.Sort(names)
	return names
}

func readyList() string { return strings.Join(ReadyNames(), ", ") }
