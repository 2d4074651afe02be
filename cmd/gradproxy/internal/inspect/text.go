package inspect

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	var total Direction
	unknowns, unknownBytes := 0, 0
	for _, c := range r.Connections {
		total = total.plus(c.FromClient).plus(c.FromServer)
		if c.Protocol == unknown {
			unknowns++
			unknownBytes += c.FromClient.Bytes + c.FromServer.Bytes
			continue
		}
		note := ""
		if !c.Complete {
			note = ", bytes are missing"
		}
		fmt.Fprintf(t, "%s, client %s, server %s%s\n", c.Protocol, c.Client, c.Server, note)
		fmt.Fprintf(t, "  from client\t%v\n  from server\t%v\n", c.FromClient, c.FromServer)
	}
	if unknowns > 0 {
		fmt.Fprintf(t, "%s of protocols that no parser knows: %s\n", plural(unknowns, "connection"), size(unknownBytes))
	}
	if len(r.Connections) == 0 {
		fmt.Fprintln(t, "no TCP connections")
		return t.Flush()
	}
	fmt.Fprintf(t, "in all\t%v\n", total)
	if err := t.Flush(); err != nil {
		return err
	}
	r.writePolicies(t)
	if total.RoleBytes.Unknown > 0 && total.RoleBytes.Gradient == 0 {
		fmt.Fprintln(t, "Where a protocol does not say what its sums are, --sums gradients does.")
	}
	return t.Flush()
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
