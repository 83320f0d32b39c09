// Draws a dashboard with Grafana's own components, from answers of Prometheus.
//
// `window.DRAWN` has the dashboard, the answers by id of panel and letter of query, the range in
// milliseconds, and the size in pixels of a column and of a unit of height.
import "uplot/dist/uPlot.min.css";
import {createRoot} from "react-dom/client";
import {FieldType, ThemeContext, createTheme, dateTime, getDisplayProcessor} from "@grafana/data";
import {
  BarGauge, BarGaugeDisplayMode, BigValue, BigValueColorMode, BigValueGraphMode, BigValueTextMode,
  GlobalStyles, LegendDisplayMode, PanelChrome, TimeSeries,
} from "@grafana/ui";

const {dashboard, answers, from, to, column, unit, gap} = window.DRAWN;
const theme = createTheme({colors: {mode: "dark"}});
const range = {from: dateTime(from), to: dateTime(to), raw: {from: dateTime(from), to: dateTime(to)}};

function named(pattern, labels) {
  if (pattern === "__auto") return Object.entries(labels).map(([k, v]) => `${k}="${v}"`).join(", ") || "value";
  return pattern.replace(/\{\{(\w+)\}\}/g, (_, name) => labels[name] ?? "");
}

function fields(panel) {
  const found = panel.targets.flatMap((target) =>
    (answers[panel.id]?.[target.refId] ?? []).map(({metric, values}) => ({
      name: named(target.legendFormat, metric), values,
    })));
  return found.map(({name, values}, index) => {
    const times = values.map(([time]) => time * 1000);
    const config = {...panel.fieldConfig.defaults, displayName: name};
    const field = {name, type: FieldType.number, config, values: values.map(([, v]) => (v === "NaN" ? null : Number(v))), state: {seriesIndex: index, displayName: name}};
    field.display = getDisplayProcessor({field, theme});
    return {times, field};
  });
}

// The rows of a frame have to have the same times: where a series has no answer, there is a gap.
function frame(series) {
  const times = [...new Set(series.flatMap(({times}) => times))].sort((a, b) => a - b);
  const time = {name: "time", type: FieldType.time, config: {}, values: times};
  const columns = series.map(({times: own, field}) => {
    const by = new Map(own.map((each, index) => [each, field.values[index]]));
    return {...field, values: times.map((each) => by.get(each) ?? null)};
  });
  return {length: times.length, fields: [time, ...columns]};
}

function last(field) {
  return field.values.filter((each) => each !== null).at(-1);
}

function Lines({panel, series, width, height}) {
  const legend = {displayMode: LegendDisplayMode.List, placement: "bottom", showLegend: true, calcs: []};
  return <TimeSeries frames={[frame(series)]} structureRev={1} timeRange={range} timeZone="utc" legend={legend} options={{legend}} width={width} height={height}>{() => null}</TimeSeries>;
}

function Single({panel, series, width, height}) {
  const {times, field} = series[0];
  const value = field.display(last(field));
  const sparkline = {y: {...field, config: {...field.config, color: {mode: "thresholds"}}}, x: {name: "time", type: FieldType.time, config: {}, values: times}, timeRange: range};
  return <BigValue width={width} height={height} theme={theme} value={value} sparkline={sparkline} colorMode={BigValueColorMode.Value} graphMode={BigValueGraphMode.Area} textMode={BigValueTextMode.Value} />;
}

function Bars({panel, series, width, height}) {
  const each = Math.min(44, Math.floor(height / series.length) - 4);
  return series.map(({field}) => {
    const value = {...field.display(last(field)), title: field.name};
    return <div key={field.name} style={{marginBottom: 4}}><BarGauge text={panel.options.text} width={width} height={each} theme={theme} value={value} field={field.config} display={field.display} orientation="horizontal" displayMode={BarGaugeDisplayMode.Basic} itemSpacing={4} lcdCellWidth={12} /></div>;
  });
}

const KINDS = {timeseries: Lines, stat: Single, bargauge: Bars};

function Place({panel}) {
  const {x, y, w, h} = panel.gridPos;
  const width = w * column - gap, height = h * unit - gap;
  const style = {position: "absolute", left: x * column, top: y * unit, width, height};
  if (panel.type === "row") return <div style={{...style, color: theme.colors.text.primary, fontWeight: 500, paddingTop: 6}}>{panel.title}</div>;
  const series = fields(panel);
  const Kind = KINDS[panel.type];
  return <div style={style} data-panel={panel.id} data-series={series.length}>
    <PanelChrome title={panel.title} description={panel.description || undefined} width={width} height={height} padding="md">
      {(inner, outer) => series.length ? <Kind panel={panel} series={series} width={inner} height={outer} /> : <div style={{textAlign: "center", paddingTop: 20}}>No data</div>}
    </PanelChrome>
  </div>;
}

const bottom = Math.max(...dashboard.panels.map(({gridPos}) => gridPos.y + gridPos.h));
createRoot(document.getElementById("root")).render(
  <ThemeContext.Provider value={theme}>
    <GlobalStyles hackNoBackdropBlur={true} isExtensionSidebarOpen={false} />
    <div style={{position: "relative", width: 24 * column, height: bottom * unit}}>
      {dashboard.panels.map((panel) => <Place key={panel.id} panel={panel} />)}
    </div>
  </ThemeContext.Provider>);
