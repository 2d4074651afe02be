package main

import (
	"bytes"
	"encoding/json"
)

// The types of this file are the part of Grafana's dashboard model that the dashboards use. Their JSON names are Grafana's:
// https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/

// schemaVersion is that of Grafana 10; newer ones read it.
const schemaVersion = 38

type board struct {
	UID           string      `json:"uid"`
	Title         string      `json:"title"`
	Description   string      `json:"description"`
	Tags          []string    `json:"tags"`
	SchemaVersion int         `json:"schemaVersion"`
	Editable      bool        `json:"editable"`
	GraphTooltip  int         `json:"graphTooltip"` // 1: all panels show the same moment
	Refresh       string      `json:"refresh"`
	Time          period      `json:"time"`
	Templating    templating  `json:"templating"`
	Annotations   annotations `json:"annotations"`
	Links         []link      `json:"links"`
	Panels        []*panel    `json:"panels"`

	x, y, height int // where the next panel stands, and the height of its row
}

type period struct {
	From string `json:"from"`
	To   string `json:"to"`
}

type templating struct {
	List []variable `json:"list"`
}

// A variable is a choice at the top of a dashboard.
type variable struct {
	Name       string  `json:"name"`
	Label      string  `json:"label"`
	Type       string  `json:"type"`
	Query      string  `json:"query"`
	Datasource *source `json:"datasource,omitempty"`
	Definition string  `json:"definition,omitempty"`
	Refresh    int     `json:"refresh,omitempty"` // 2: when the time range changes
	IncludeAll bool    `json:"includeAll,omitempty"`
	Multi      bool    `json:"multi,omitempty"`
	AllValue   string  `json:"allValue,omitempty"`
}

type annotations struct {
	List []annotation `json:"list"`
}

// An annotation marks times on all panels.
type annotation struct {
	Name       string `json:"name"`
	Datasource source `json:"datasource"`
	Enable     bool   `json:"enable"`
	Expr       string `json:"expr"`
	IconColor  string `json:"iconColor"`
	Step       string `json:"step"`
	Title      string `json:"titleFormat"`
}

type link struct {
	Title       string   `json:"title"`
	Type        string   `json:"type"`
	Tags        []string `json:"tags"`
	AsDropdown  bool     `json:"asDropdown"`
	IncludeVars bool     `json:"includeVars"`
	KeepTime    bool     `json:"keepTime"`
}

type source struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type panel struct {
	ID          int            `json:"id"`
	Type        string         `json:"type"`
	Title       string         `json:"title"`
	Description string         `json:"description,omitempty"`
	GridPos     gridPos        `json:"gridPos"`
	Datasource  source         `json:"datasource"`
	Targets     []target       `json:"targets"`
	FieldConfig fieldConfig    `json:"fieldConfig"`
	Options     map[string]any `json:"options"`
}

type gridPos struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

type target struct {
	RefID        string `json:"refId"`
	Datasource   source `json:"datasource"`
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat"`
}

type fieldConfig struct {
	Defaults  fieldDefaults `json:"defaults"`
	Overrides []struct{}    `json:"overrides"`
}

type fieldDefaults struct {
	Unit     string         `json:"unit"`
	Decimals *int           `json:"decimals,omitempty"`
	Min      *float64       `json:"min,omitempty"`
	Custom   map[string]any `json:"custom,omitempty"`
}

// prometheus is the data source that the reader chooses.
var prometheus = source{"prometheus", "${datasource}"}

// newBoard returns a dashboard without panels, with choices of proxy and peer.
func newBoard(uid, title, description string) *board {
	choice := func(name, label, query string) variable {
		return variable{Name: name, Label: label, Type: "query", Query: query, Definition: query, Datasource: &prometheus, Refresh: 2, IncludeAll: true, Multi: true, AllValue: ".*"}
	}
	return &board{
		UID: uid, Title: title, Description: description, Tags: []string{"gradproxy"}, SchemaVersion: schemaVersion, Editable: true, GraphTooltip: 1,
		Refresh: "10s", Time: period{"now-1h", "now"},
		Templating: templating{[]variable{
			{Name: "datasource", Label: "Prometheus", Type: "datasource", Query: "prometheus"},
			choice("instance", "proxy", "label_values(gradproxy_build_info, instance)"),
			choice("peer", "peer", `label_values(gradproxy_peer_up{instance=~"$instance"}, peer)`),
		}},
		Annotations: annotations{[]annotation{{Name: "outages", Datasource: prometheus, Enable: true, IconColor: "red", Step: "10s",
			Expr: metric("peer_outage_seconds", peers) + " > 0", Title: "outage to {{peer}}"}}},
		Links:  []link{{Title: "gradproxy", Type: "dashboards", Tags: []string{"gradproxy"}, AsDropdown: true, IncludeVars: true, KeepTime: true}},
		Panels: []*panel{},
	}
}

// A line is one expression of a panel, with the legend of its series.
type line struct{ legend, expr string }

const (
	columns     = 24 // of Grafana's grid
	statHeight  = 4
	graphHeight = 8
)

// graph adds lines over time, a third of a row wide.
func (b *board) graph(title, unit, description string, lines ...line) {
	p := b.add("timeseries", title, unit, description, columns/3, graphHeight, lines)
	p.FieldConfig.Defaults.Custom = map[string]any{"fillOpacity": 10, "lineWidth": 1, "showPoints": "never", "spanNulls": false}
	p.Options = map[string]any{"legend": map[string]any{"displayMode": "list", "placement": "bottom"}, "tooltip": map[string]any{"mode": "multi", "sort": "desc"}}
}

// number adds one number, a sixth of a row wide.
func (b *board) number(title, unit, description, expr string) {
	p := b.add("stat", title, unit, description, columns/6, statHeight, []line{{"", expr}})
	p.Options = map[string]any{"reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}}, "graphMode": "area", "colorMode": "value"}
}

func (b *board) add(kind, title, unit, description string, width, height int, lines []line) *panel {
	if b.x+width > columns || b.height != height && b.x > 0 {
		b.x, b.y = 0, b.y+b.height
	}
	b.height = height
	p := &panel{ID: len(b.Panels) + 1, Type: kind, Title: title, Description: description, GridPos: gridPos{height, width, b.x, b.y}, Datasource: prometheus,
		FieldConfig: fieldConfig{Defaults: fieldDefaults{Unit: unit}, Overrides: []struct{}{}}}
	for i, l := range lines {
		p.Targets = append(p.Targets, target{string(rune('A' + i)), prometheus, l.expr, l.legend})
	}
	b.x += width
	b.Panels = append(b.Panels, p)
	return p
}

func (b *board) json() ([]byte, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(b)
	return text.Bytes(), err
}
