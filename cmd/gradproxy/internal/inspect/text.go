package inspect

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	var total Direction
	for i := range r.Hosts {
		h := &r.Hosts[i]
		total = total.plus(h.directions[0]).plus(h.directions[1])
		fmt.Fprintln(t, h)
		if h.Protocol != unknown {
			fmt.Fprintf(t, "  from client\t%v\n  from server\t%v\n", h.directions[0], h.directions[1])
		}
	}
	if len(r.Connections) == 0 {
		fmt.Fprintln(t, "no TCP connections")
		return t.Flush()
	}
	fmt.Fprintf(t, "in all\t%v\n", total)
	if err := t.Flush(); err != nil {
		return err
	}
	r.writeMethods(t)
	r.writePolicies(t)
	if r.WhatIf != nil {
		r.WhatIf.write(t)
	}
	if total.RoleBytes.Unknown > 0 && total.RoleBytes.Gradient == 0 {
		fmt.Fprintln(t, "Where a protocol does not tell the meaning of its sums, --sums gradients does.")
	}
	return t.Flush()
}

// String returns the hosts and the protocol in one line.
func (h *HostPair) String() string {
	var list []string
	for _, p := range h.Ports {
		list = append(list, fmt.Sprint(p))
	}
	line := fmt.Sprintf("%s, client %s, server %s, port %s, %s", described(h.Protocol, h.Name), h.Client, h.Server, strings.Join(list, " "), plural(h.Connections, "connection"))
	if h.Protocol == unknown {
		return line + fmt.Sprintf(": %s and %s that no parser knows", size(h.FromClient), size(h.FromServer))
	}
	if h.incomplete > 0 {
		line += fmt.Sprintf(", bytes of %d are missing", h.incomplete)
	}
	return line
}

// plus returns the sum of both.
func (d Direction) plus(e Direction) Direction {
	return Direction{
		Bytes: d.Bytes + e.Bytes, Messages: d.Messages + e.Messages, PayloadMessages: d.PayloadMessages + e.PayloadMessages,
		PayloadBytes: d.PayloadBytes + e.PayloadBytes, RoleBytes: d.RoleBytes.plus(e.RoleBytes), Lossless: d.Lossless + e.Lossless,
	}
}

// String returns the direction in one line with tabs.
func (d Direction) String() string {
	if d.Bytes == 0 {
		return "nothing"
	}
	line := fmt.Sprintf("%s in %s\t%s of tensors in %d", size(d.Bytes), plural(d.Messages, "message"), size(d.PayloadBytes), d.PayloadMessages)
	b := d.RoleBytes
	var roles []string
	for _, r := range []struct {
		name  string
		bytes int
	}{{"gradient", b.Gradient}, {"aggregate", b.Aggregate}, {"state", b.State}, {"exact", b.Exact}, {"unknown", b.Unknown}} {
		if r.bytes > 0 {
			roles = append(roles, r.name+" "+size(r.bytes))
		}
	}
	return line + "\t" + strings.Join(roles, ", ") + fmt.Sprintf("\tlosslessly %s (%.2fx)", size(d.Lossless), float64(d.Bytes)/float64(max(1, d.Lossless)))
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// size writes bytes in decimal units, as links are rated.
func size(n int) string {
	for _, u := range []struct {
		name string
		of   float64
	}{{"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}} {
		if float64(n) >= u.of {
			return fmt.Sprintf("%.2f %s", float64(n)/u.of, u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// writeMethods writes a line for each method and side that has tensors, with their sizes under each policy.
func (r *Report) writeMethods(w io.Writer) {
	if len(r.Methods) == 0 {
		return
	}
	fmt.Fprint(w, "\ntensors of each method\tfrom\tbytes")
	for _, c := range r.Policies {
		fmt.Fprintf(w, "\t%s", c.Codec)
	}
	fmt.Fprintln(w)
	for _, m := range r.Methods {
		for _, s := range []struct {
			from string
			MethodSide
		}{{"client", m.FromClient}, {"server", m.FromServer}} {
			if s.TensorBytes == 0 {
				continue
			}
			fmt.Fprintf(w, "%s %s\t%s\t%s", m.Protocol, printable(m.Method), s.from, size(s.TensorBytes))
			for _, c := range r.Policies {
				n := s.Policies[c.Codec]
				fmt.Fprintf(w, "\t%s (%.2fx)", size(n), float64(s.TensorBytes)/float64(max(1, n)))
			}
			fmt.Fprintln(w)
		}
	}
}

// printable replaces the characters of text from a capture that a terminal would obey.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// writePolicies writes a line for each policy.
func (r *Report) writePolicies(w io.Writer) {
	fmt.Fprintln(w, "\nwhat would have gone into the tunnel\tbytes\tratio\tgradients\taggregates\tweights\tthe rest")
	for _, c := range r.Policies {
		var rest RoleCost
		for _, part := range []RoleCost{c.Roles.Exact, c.Roles.Unknown, c.Roles.Opaque} {
			rest.RawBytes += part.RawBytes
			rest.Bytes += part.Bytes
		}
		note := ""
		if c.ShortOfMemory {
			note = "\ttoo much: there was no memory for all tensors"
		}
		fmt.Fprintf(w, "%s\t%s\t%.2fx\t%v\t%v\t%v\t%v%s\n", c.Codec, size(c.Bytes), c.Ratio, c.Roles.Gradient, c.Roles.Aggregate, c.Roles.State, rest, note)
	}
}

// String returns both sizes.
func (c RoleCost) String() string {
	if c.RawBytes == 0 {
		return "none"
	}
	return fmt.Sprintf("%s to %s", size(c.RawBytes), size(c.Bytes))
}

// write writes a line for each outcome.
func (f *WhatIf) write(w io.Writer) {
	fmt.Fprintf(w, "\nwhat if each of these sites had a proxy and a link: %s\n", strings.Join(f.Sites, ", "))
	fmt.Fprint(w, "policy\tlink bytes\tratio\terror")
	for _, l := range f.Links {
		fmt.Fprintf(w, "\t%v", l)
	}
	if f.Price > 0 {
		fmt.Fprintf(w, "\t%s at %v per GB", f.Currency, f.Price)
	}
	fmt.Fprintln(w)
	for i := range f.Outcomes {
		o := &f.Outcomes[i]
		fmt.Fprintf(w, "%s\t%s\t%.2fx\t%s", o.Codec, size(o.Bytes), o.Ratio, relative(o.Error))
		for _, s := range o.Seconds {
			fmt.Fprintf(w, "\t%s", seconds(s))
		}
		if f.Price > 0 {
			fmt.Fprintf(w, "\t%s", money(o.Money))
		}
		fmt.Fprintln(w)
	}
	if f.Alike != "" {
		fmt.Fprintln(w, f.Alike)
	}
}

// String writes the link as users do.
func (l WireLink) String() string {
	return Link{l.Rate, time.Duration(l.RTT * float64(time.Millisecond))}.String()
}

// Texts returns the functions with which a report is written, for templates.
func Texts() map[string]any {
	return map[string]any{"size": size, "seconds": seconds, "money": money, "relative": relative, "described": described}
}

// relative writes a relative error.
func relative(e float64) string {
	if e == 0 {
		return "none"
	}
	return fmt.Sprintf("%.2g", e)
}

// seconds writes a time.
func seconds(s float64) string {
	if s >= 1000 {
		return fmt.Sprintf("%.0f s", s)
	}
	return fmt.Sprintf("%.3g s", s)
}

// money writes an amount, of a bill or of a part of a cent.
func money(m float64) string {
	if m >= 1 {
		return fmt.Sprintf("%.2f", m)
	}
	return fmt.Sprintf("%.2g", m)
}
