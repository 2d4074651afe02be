package nvflaresim

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Types of the text that announces arrays, by the container of their files.
const (
	announcesNumPy = 3
	announcesTorch = 6
)

// An Announcement is a message that names arrays, to be downloaded by its reference.
type Announcement struct {
	Task  string
	Round int
	Kind  string // of the DXO
	Ref   string
	Torch bool     // files are safetensors, else ZIP files of NumPy
	Names []string // of the arrays, in the order of their files
	Meta  Map      // of the DXO
}

// Content returns the content of the stream that announces the arrays.
func (a *Announcement) Content() []byte {
	object, class := byte(announcesNumPy), "numpy.ndarray"
	if a.Torch {
		object, class = announcesTorch, "torch.Tensor"
	}
	data := Map{}
	for i, n := range a.Names {
		data = append(data, n, Map{"__fobs_type__", class, "__fobs_data__", Map{"type", "ref", "data", item(i)}})
	}
	text := fmt.Sprintf(`{"fqcn": "x", "ref_id": "%s"}`, a.Ref)
	return append(Section(MarkerValue, 0, Pack(Map{"__fobs_type__", "Shareable", "__fobs_data__", Map{
		"__headers__", Map{"current_round", a.Round, "__task_name__", a.Task},
		"DXO", Map{"kind", Map{"__fobs_type__", "DataKind", "__fobs_data__", a.Kind}, "data", data, "meta", a.Meta},
	}})), Section(MarkerText, object, append(bytes.Repeat([]byte{7}, idLen), text...))...)
}

// item is the name of a file, by its number in the announcement.
func item(i int) string { return fmt.Sprintf("T%d", i) }

// readAnnouncement reads the content of a stream that Announcement.Content made, but for Meta.
func readAnnouncement(content []byte) (a Announcement, err error) {
	all, err := sections(content)
	if err != nil {
		return a, err
	}
	v, _, err := unpack(all[MarkerValue])
	if err != nil {
		return a, err
	}
	fobs := tree{v}.at("__fobs_data__")
	a.Task, a.Round = fobs.at("__headers__", "__task_name__").text(), fobs.at("__headers__", "current_round").number()
	a.Kind = fobs.at("DXO", "kind", "__fobs_data__").text()
	data, _ := fobs.at("DXO", "data").value.(map[string]any)
	a.Names = make([]string, len(data))
	for name, v := range data {
		i := -1
		if _, err := fmt.Sscanf(tree{v}.at("__fobs_data__", "data").text(), "T%d", &i); err != nil || i < 0 || i >= len(data) || a.Names[i] != "" {
			return a, fmt.Errorf("%w: array %q is item %d of %d", errMessage, name, i, len(data))
		}
		a.Names[i] = name
	}
	var text struct {
		Ref string `json:"ref_id"`
	}
	if b := all[MarkerText]; len(b) < idLen || json.Unmarshal(b[idLen:], &text) != nil {
		return a, fmt.Errorf("%w: an announcement without a ref_id", errMessage)
	}
	a.Ref = text.Ref
	return a, nil
}

// Request returns the content of a request for the arrays of an announcement, from number start on.
func Request(ref string, start int) []byte {
	request := Map{"ref_id", ref, "confirm_capable", true}
	if start > 0 {
		request = append(request, "state", Map{"start", start, "count", 1})
	}
	return Section(MarkerValue, 0, Pack(request))
}

// Items returns the content of an answer to Request with the files from number start on: within the answer's value, or
// apart, each in a section of its own, as NVFlare sends files of 10 MiB or more.
func Items(files [][]byte, start int, apart bool) []byte {
	data, rest := []any{}, []byte{}
	for _, b := range files {
		if apart {
			rest = append(rest, Section(MarkerBytes, 5, append(bytes.Repeat([]byte{9}, idLen), b...))...)
			data = append(data, Map{"datum_id", "x"})
			continue
		}
		data = append(data, b)
	}
	value := Map{"status", "ok", "state", Map{"start", start, "count", len(files)}, "data", data, "cancel_capable", true}
	return append(Section(MarkerValue, 0, Pack(value)), rest...)
}

// eof is the content of the answer behind the last items.
func eof() []byte {
	return Section(MarkerValue, 0, Pack(Map{"status", "eof", "confirm_nonce", "nonce"}))
}
