package main

import (
	"bytes"
	"encoding/json"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// schemaVersion is that of Grafana 10; newer ones read it.
const schemaVersion = 38

// A board is a dashboard in Grafana's own model, whose panels stand in rows.
type board struct {
	uid          string
	builder      *dashboard.DashboardBuilder
	panels       uint32
	x, y, height uint32 // where the next panel stands, and the height of its row
}

// source is the data source that the reader chooses.
var source = common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${datasource}")}

// newBoard returns a dashboard without panels, with choices of proxy and peer.
func newBoard(uid, title, description string) *board {
	choice := func(name, label, query string) *dashboard.QueryVariableBuilder {
		return dashboard.NewQueryVariableBuilder(name).Label(label).Query(dashboard.StringOrMap{String: &query}).Definition(query).Datasource(source).
			Refresh(dashboard.VariableRefreshOnTimeRangeChanged).IncludeAll(true).Multi(true).AllValue(".*")
	}
	return &board{uid: uid, builder: dashboard.NewDashboardBuilder(title).Uid(uid).Description(description).Tags([]string{"gradproxy"}).
		Tooltip(dashboard.DashboardCursorSyncCrosshair).Refresh("10s").Time("now-1h", "now").
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Prometheus").Type("prometheus")).
		WithVariable(choice("instance", "proxy", "label_values(gradproxy_build_info, instance)")).
		WithVariable(choice("peer", "peer", `label_values(gradproxy_peer_up{instance=~"$instance"}, peer)`)).
		Annotation(dashboard.NewAnnotationQueryBuilder().Name("outages").Datasource(source).Enable(true).IconColor("red").Step("10s").
			Expr(metric("peer_outage_seconds", peers) + " > 0").TitleFormat("outage to {{peer}}")).
		Link(dashboard.NewDashboardLinkBuilder("gradproxy").Type(dashboard.DashboardLinkTypeDashboards).Tags([]string{"gradproxy"}).
			AsDropdown(true).IncludeVars(true).KeepTime(true))}
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
	p := timeseries.NewPanelBuilder().Id(b.next()).Title(title).Description(description).Datasource(source).Unit(unit).GridPos(b.place(columns/3, graphHeight)).
		FillOpacity(10).LineWidth(1).ShowPoints(common.VisibilityModeNever).
		Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom).ShowLegend(true)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
	for i, l := range lines {
		p.WithTarget(query(i, l))
	}
	b.builder.WithPanel(p)
}

// number adds one number, a sixth of a row wide.
func (b *board) number(title, unit, description, expr string) {
	b.builder.WithPanel(stat.NewPanelBuilder().Id(b.next()).Title(title).Description(description).Datasource(source).Unit(unit).GridPos(b.place(columns/6, statHeight)).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).
		GraphMode(common.BigValueGraphModeArea).ColorMode(common.BigValueColorModeValue).
		WithTarget(query(0, line{"", expr})))
}

// query returns the i-th query of a panel.
func query(i int, l line) *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().RefId(string(rune('A' + i))).Datasource(source).Expr(l.expr).LegendFormat(l.legend)
}

// next returns the number of the next panel.
func (b *board) next() uint32 {
	b.panels++
	return b.panels
}

// place returns where the next panel stands: beside the last one if the row has room, and panels of its height.
func (b *board) place(width, height uint32) dashboard.GridPos {
	if b.x+width > columns || b.height != height && b.x > 0 {
		b.x, b.y = 0, b.y+b.height
	}
	b.height = height
	at := dashboard.GridPos{H: height, W: width, X: b.x, Y: b.y}
	b.x += width
	return at
}

func (b *board) json() ([]byte, error) {
	built, err := b.builder.Build()
	if err != nil {
		return nil, err
	}
	built.SchemaVersion = schemaVersion
	// By default the library puts annotations and links into a menu of newer releases.
	for i := range built.Annotations.List {
		built.Annotations.List[i].Placement = nil
	}
	for i := range built.Links {
		built.Links[i].Placement = nil
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err = e.Encode(built)
	return text.Bytes(), err
}
