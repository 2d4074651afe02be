package nvflaresim

import "fmt"

// announce returns the content that announces x, and the reference of its arrays. Each announcement of a cell has a
// reference of its own.
func (c *cell) announce(x Shareable) (content []byte, ref string) {
	a := Announcement{Task: x.Task, Round: x.Round, Kind: x.Kind, Torch: true}
	a.Ref = fmt.Sprintf("ref-%s-%s-%d", c.sender.Origin, c.sender.Destination, c.sender.Last)
	for _, v := range x.Arrays {
		a.Names = append(a.Names, v.Name)
	}
	return a.Content(), a.Ref
}

// maxItems bounds the files of an answer with more than one, in bytes.
const maxItems = 2 << 20

// give answers downloads of announced arrays, until the other cell has all of them.
func (c *cell) give(ref string, arrays []Array) error {
	for {
		s, err := c.asked(downloads, download)
		if err != nil {
			return err
		}
		request, err := valueOf(s.Content)
		if err != nil {
			return err
		}
		start := request.at("state", "start").number()
		if request.at("ref_id").text() != ref || start < 0 || start > len(arrays) {
			return fmt.Errorf("%w: %s is asked for from array %d on, want %s with %d arrays", errMessage, request.at("ref_id").text(), start, ref, len(arrays))
		}
		if start == len(arrays) {
			return c.send(s.Answer(eof()))
		}
		if err := c.send(s.Answer(Items(filesFrom(arrays, start), start, false))); err != nil {
			return err
		}
	}
}

// filesFrom returns the files of one answer.
func filesFrom(arrays []Array, start int) (files [][]byte) {
	size := 0
	for i, a := range arrays[start:] {
		f := fileOf(item(start+i), a.Values)
		if size += len(f); i > 0 && size > maxItems {
			break
		}
		files = append(files, f)
	}
	return files
}

// fetch downloads the arrays of an announcement, and returns them with its facts.
func (c *cell) fetch(a Announcement) (Shareable, error) {
	x := Shareable{Task: a.Task, Round: a.Round, Kind: a.Kind}
	for len(a.Names) > 0 {
		content, err := c.ask(downloads, download, Request(a.Ref, len(x.Arrays)))
		if err != nil {
			return x, err
		}
		answer, err := valueOf(content)
		if err != nil {
			return x, err
		}
		files, _ := answer.at("data").value.([]any)
		switch done, missing := answer.at("status").text() == "eof", len(a.Names)-len(x.Arrays); {
		case done && missing == 0:
			return x, nil
		case done, len(files) == 0, len(files) > missing:
			return x, fmt.Errorf("%w: %d files, where %d of %d arrays are missing", errMessage, len(files), missing, len(a.Names))
		}
		for _, f := range files {
			b, _ := f.([]byte)
			values, err := valuesOf(b)
			if err != nil {
				return x, err
			}
			x.Arrays = append(x.Arrays, Array{a.Names[len(x.Arrays)], values})
		}
	}
	return x, nil
}

// valueOf returns the first value of a stream's content.
func valueOf(content []byte) (tree, error) {
	all, err := sections(content)
	if err != nil {
		return tree{}, err
	}
	v, _, err := unpack(all[MarkerValue])
	return tree{v}, err
}
