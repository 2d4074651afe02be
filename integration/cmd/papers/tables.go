package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gradproxy/gradproxy/integration/cmd/papers/data"
)

// A Config chooses the measurements. The zero Config measures everything.
type Config struct {
	Papers []string // of Names; none: all
	Quick  bool     // fewer steps, and for networks the digits that the program has in itself
	Data   string   // directory of downloaded data; "": data.Dir()
}

// experiments lists the tables, paper by paper.
var experiments = [...]experiment{
	{"3lc", "Table 2", "average traffic compression", threelcTraffic},
	{"3lc", "Table 1", "modelled speed-up, and test accuracy", threelcSpeed},
	{"skcompress", "Section 7.2", "size of messages and keys", skcompressSize},
	{"skcompress", "Table 4", "model accuracy", skcompressAccuracy},
	{"skcompress", "Table 5", "the driver, by the number of workers", skcompressDriver},
	{"skcompress", "Section 7.7", "a neural net's gradients", skcompressDense},
	{"fastsgd", "Table V", "space cost of a gradient key", fastsgdKeys},
	{"fastsgd", "Table VI", "space cost of a gradient key by the size of the length flag", fastsgdFlags},
	{"fastsgd", "Figure 4 (b)", "message size", fastsgdSizes},
	{"fastsgd", "Table IV", "communication of an epoch", fastsgdTime},
	{"fastsgd", "Table VII", "convergence", fastsgdConvergence},
	{"gspar", "Figure 1", "variance of sparsified gradients, SGD", gsparFigure1},
	{"gspar", "Figure 2", "variance of sparsified gradients, SVRG", gsparFigure2},
	{"sketchedsgd", "Section 5.3", "compression, worked out", sketchedAccounting},
	{"sketchedsgd", "Figure 4", "traffic by the number of workers", sketchedReturn},
	{"sketchedsgd", "Sections 5.4 and 6", "test accuracy", sketchedAccuracy},
}

// An experiment measures one table.
type experiment struct {
	paper, table, title string
	measure             func(ctx context.Context, l *lab, t *Table) error
}

// Names lists the papers.
func Names() []string {
	var names []string
	for _, e := range experiments {
		if !slices.Contains(names, e.paper) {
			names = append(names, e.paper)
		}
	}
	return names
}

// Run measures each table of c.Papers and gives it to report as soon as it is there. A table whose data is not on this
// machine is left out, and skipped is given an error that wraps data.ErrMissing and says how to get it.
func Run(ctx context.Context, c Config, report func(Table), skipped func(error)) error {
	for _, name := range c.Papers {
		if !slices.Contains(Names(), name) {
			return fmt.Errorf("%w %q: there are %s", ErrPaper, name, strings.Join(Names(), ", "))
		}
	}
	if c.Data == "" {
		c.Data = data.Dir()
	}
	l := newLab(c)
	for _, e := range experiments {
		if len(c.Papers) > 0 && !slices.Contains(c.Papers, e.paper) {
			continue
		}
		t := Table{Paper: e.paper, Table: e.table, Title: e.title, Quick: c.Quick}
		err := e.measure(ctx, l, &t)
		switch {
		case errors.Is(err, data.ErrMissing):
			skipped(fmt.Errorf("%s, %s is left out: %w", e.paper, e.table, err))
		case err != nil:
			return fmt.Errorf("%s, %s: %w", e.paper, e.table, err)
		default:
			report(t)
		}
	}
	return nil
}

// ErrPaper says that a name is none of Names.
var ErrPaper = errors.New("unknown paper")
