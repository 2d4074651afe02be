package strict

import (
	"fmt"
	"strings"
)

// A Problem is one thing that is wrong, or doubtful, in a file.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`  // from 1; 0: the file as a whole
	Where   string `json:"where"` // the key, as in "peers[0].networks[1]"
	Message string `json:"message"`
	Warning bool   `json:"-"`
}

// Error returns the problem as one line: FILE:LINE: WHERE: MESSAGE.
func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	b.WriteString(": ")
	if p.Where != "" {
		b.WriteString(p.Where + ": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// Problems are all problems of one file, in the order of its lines.
type Problems []Problem

// Errors returns the problems that keep the file from being used.
func (ps Problems) Errors() Problems { return ps.of(false) }

// Warnings returns the others.
func (ps Problems) Warnings() Problems { return ps.of(true) }

func (ps Problems) of(warning bool) Problems {
	var out Problems
	for _, p := range ps {
		if p.Warning == warning {
			out = append(out, p)
		}
	}
	return out
}

// Error returns one line for each problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}
