//! Draws two kinds of charts as SVG: line charts, and bar charts with published values beside the bars.
//!
//! 1. A chart is as large as its content needs, and its texts do not overlap.
//! 2. The SVG contains texts as text, and the viewer chooses the font. So this module estimates their widths.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::tell;
use varve_bench::{BenchError, Result};

/// Sizes in pixels.
const WIDTH: u32 = 1100;
const LINES_HEIGHT: u32 = 420;
const BAR_HEIGHT: u32 = 24;
const TEXT_HEIGHT: u32 = 17;
const TITLE_HEIGHT: u32 = 30;
const AXIS_HEIGHT: u32 = 46;
const LABEL_WIDTH_MAX: u32 = 520;
const MARGIN: u32 = 12;
/// The estimated width of a letter in pixels, and the most letters of a line.
const LETTER_WIDTH: f64 = 6.4;
const LINE_LETTERS: usize = 160;
/// Space to the right of the longest bar for the figures of the bars, as a share of the bar's length.
const BEHIND: f64 = 0.75;

const FONT: &str = "sans-serif";
const TITLE_SIZE: i32 = 18;
const TEXT_SIZE: i32 = 13;

const SOUND: RGBColor = RGBColor(70, 110, 165);
const PALE: RGBColor = RGBColor(185, 200, 220);
const PUBLISHED: RGBColor = RGBColor(200, 50, 40);
const DEMANDED: RGBColor = RGBColor(20, 20, 20);
/// Colours that colour-blind people can distinguish (Okabe and Ito, without the pale yellow).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(140, 140, 140),
];

/// The texts of a chart: title, source, and conditions of the measurement.
#[derive(Debug, Clone)]
pub struct Caption {
    /// The title, in large letters.
    pub title: String,
    /// Lines below the title. A long line is broken.
    pub lines: Vec<String>,
}

/// One bar of a bar chart.
#[derive(Debug, Clone)]
pub struct Bar {
    /// The text to the left of the bar.
    pub label: String,
    /// The length of the bar.
    pub value: f64,
    /// The text to the right of the bar.
    pub note: String,
    /// Whether the measured point counts. If it does not, the bar is pale.
    pub is_sound: bool,
    /// The published value, drawn as a diamond.
    pub published: Option<f64>,
    /// This project's goal, drawn as an upright line.
    pub demanded: Option<f64>,
}

/// One line of a line chart.
#[derive(Debug, Clone)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// The points of the line.
    pub points: Vec<(f64, f64)>,
}

/// The axes of a line chart.
#[derive(Debug, Clone, Copy)]
pub struct Axes<'a> {
    /// The title of the axis below.
    pub x: &'a str,
    /// The title of the axis to the left.
    pub y: &'a str,
    /// Names of the positions 0, 1, 2 ... on the axis below. It is empty if the positions are numbers.
    pub ticks: &'a [String],
    /// The axis below ends here, or at the last point if that is farther right.
    pub x_end_min: f64,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn failed(error: impl std::fmt::Display) -> BenchError {
    std::io::Error::other(format!("a chart was not drawn: {error}")).into()
}

fn style(size: i32, color: &RGBColor, (h, v): (HPos, VPos)) -> TextStyle<'static> {
    (FONT, size).into_font().color(color).pos(Pos::new(h, v))
}

fn text_width<'t>(texts: impl Iterator<Item = &'t str>) -> u32 {
    let letters = texts.map(|text| text.chars().count()).max().unwrap_or(0);
    (letters as f64 * LETTER_WIDTH) as u32 + MARGIN
}

/// Breaks a text between words into lines of at most `LINE_LETTERS` letters. A longer word has its own line.
fn broken(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < LINE_LETTERS => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Returns a figure as text, with its significant digits and with separated thousands.
pub fn figure(value: f64) -> String {
    if value.abs() < 100.0 {
        return tell::short(value);
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = if value < 0.0 { "-".to_owned() } else { String::new() };
    for (digit, left) in digits.chars().zip((0..digits.len()).rev()) {
        text.push(digit);
        if left > 0 && left.is_multiple_of(3) {
            text.push(',');
        }
    }
    text
}

/// Returns a figure on an axis as text. Figures on an axis are round, so zeros at their end are left out.
fn on_axis(value: f64) -> String {
    if value.abs() >= 100.0 {
        return figure(value);
    }
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Draws below a caption, and returns the SVG. `height` is the height of the drawing in pixels, without the
/// caption.
fn captioned(caption: &Caption, height: u32, draw: impl FnOnce(&Area<'_>) -> Result<()>) -> Result<String> {
    let lines: Vec<String> = caption.lines.iter().flat_map(|line| broken(line)).collect();
    let head = TITLE_HEIGHT + lines.len() as u32 * TEXT_HEIGHT + MARGIN;
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (WIDTH, head + height)).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        let left = MARGIN as i32;
        let title = style(TITLE_SIZE, &BLACK, (HPos::Left, VPos::Top));
        root.draw_text(&caption.title, &title, (left, 8)).map_err(failed)?;
        let below = style(TEXT_SIZE, &RGBColor(80, 80, 80), (HPos::Left, VPos::Top));
        for (line, at) in lines.iter().zip(0..) {
            let y = (TITLE_HEIGHT + TEXT_HEIGHT * at) as i32 + 4;
            root.draw_text(line, &below, (left, y)).map_err(failed)?;
        }
        draw(&root.split_vertically(head).1)?;
        root.present().map_err(failed)?;
    }
    Ok(text)
}

/// Returns a chart of bars, from top to bottom, as SVG.
pub fn bars(caption: &Caption, axis: &str, bars: &[Bar]) -> Result<String> {
    let height = BAR_HEIGHT * bars.len().max(1) as u32 + AXIS_HEIGHT;
    captioned(caption, height, |area| draw_bars(area, axis, bars))
}

fn draw_bars(area: &Area<'_>, axis: &str, bars: &[Bar]) -> Result<()> {
    let labels = text_width(bars.iter().map(|bar| bar.label.as_str())).min(LABEL_WIDTH_MAX);
    let figures = || {
        let of = |bar: &Bar| [Some(bar.value), bar.published, bar.demanded];
        bars.iter().flat_map(of).flatten().filter(|figure| figure.is_finite())
    };
    let (least, most) = (figures().fold(0.0, f64::min), figures().fold(0.0, f64::max));
    let most = if most > least { most } else { least + 1.0 };
    let count = bars.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .margin_right(MARGIN)
        .set_label_area_size(LabelAreaPosition::Left, labels)
        .set_label_area_size(LabelAreaPosition::Bottom, AXIS_HEIGHT)
        .build_cartesian_2d(least..most + BEHIND * (most - least), 0.0..count)
        .map_err(failed)?;
    let mesh = style(TEXT_SIZE, &BLACK, (HPos::Center, VPos::Top));
    let mut shown = chart.configure_mesh();
    shown.x_label_formatter(&|figure| on_axis(*figure));
    shown.disable_y_mesh().disable_y_axis().x_desc(axis).label_style(mesh).light_line_style(WHITE);
    shown.draw().map_err(failed)?;
    for (bar, at) in bars.iter().zip(0..) {
        let y = count - f64::from(at) - 0.5;
        draw_bar(&mut chart, bar, (least.min(0.0), y)).map_err(failed)?;
    }
    Ok(())
}

type Plane = plotters::coord::types::RangedCoordf64;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Plane, Plane>>;
type Drawn = std::result::Result<(), DrawingAreaErrorKind<std::io::Error>>;

fn draw_bar(chart: &mut Chart<'_, '_>, bar: &Bar, (left, y): (f64, f64)) -> Drawn {
    let area = chart.plotting_area();
    let value = if bar.value.is_finite() { bar.value } else { 0.0 };
    let colour = if bar.is_sound { SOUND } else { PALE };
    area.draw(&Rectangle::new([(0.0, y - 0.36), (value, y + 0.36)], colour.filled()))?;
    let label = style(TEXT_SIZE, &BLACK, (HPos::Right, VPos::Center));
    area.draw(&(EmptyElement::at((left, y)) + Text::new(bar.label.clone(), (-6, 0), label)))?;
    if let Some(demanded) = bar.demanded {
        let upright =
            PathElement::new([(demanded, y - 0.46), (demanded, y + 0.46)], DEMANDED.stroke_width(2));
        area.draw(&upright)?;
    }
    if let Some(published) = bar.published {
        let diamond = Polygon::new([(0, -6), (6, 0), (0, 6), (-6, 0)], PUBLISHED.filled());
        area.draw(&(EmptyElement::at((published, y)) + diamond))?;
    }
    let ends = [Some(value), bar.published, bar.demanded];
    let behind = ends.into_iter().flatten().fold(0.0, f64::max);
    let note = style(TEXT_SIZE, &BLACK, (HPos::Left, VPos::Center));
    area.draw(&(EmptyElement::at((behind, y)) + Text::new(bar.note.clone(), (10, 0), note)))
}

/// Returns a chart of lines with a legend beside it, as SVG.
pub fn lines(caption: &Caption, axes: Axes<'_>, series: &[Series]) -> Result<String> {
    let legend = TEXT_HEIGHT * series.len() as u32 + 2 * MARGIN;
    let height = LINES_HEIGHT.max(legend);
    captioned(caption, height, |area| draw_with_legend(area, axes, series, draw_line))
}

/// Returns a chart of dots that are not joined, with a legend beside it, as SVG.
pub fn dots(caption: &Caption, axes: Axes<'_>, series: &[Series]) -> Result<String> {
    captioned(caption, LINES_HEIGHT, |area| draw_with_legend(area, axes, series, draw_dots))
}

/// A chart of dots among several that share a caption and their kinds of axes.
#[derive(Debug, Clone)]
pub struct Panel {
    /// The text above the chart.
    pub title: String,
    /// The dots.
    pub series: Vec<Series>,
}

/// Returns charts of dots, one below the other, as SVG. Their axes below have the same length.
pub fn panels(caption: &Caption, axes: Axes<'_>, panels: &[Panel]) -> Result<String> {
    let height = (LINES_HEIGHT + TITLE_HEIGHT) * panels.len().max(1) as u32;
    let points = panels.iter().flat_map(|panel| &panel.series).flat_map(|one| &one.points);
    let axes = Axes { x_end_min: points.map(|point| point.0).fold(0.0, f64::max), ..axes };
    captioned(caption, height, |area| {
        for (part, panel) in area.split_evenly((panels.len().max(1), 1)).iter().zip(panels) {
            let title = style(TEXT_SIZE, &BLACK, (HPos::Left, VPos::Top));
            part.draw_text(&panel.title, &title, (MARGIN as i32, 8)).map_err(failed)?;
            draw_with_legend(&part.split_vertically(TITLE_HEIGHT).1, axes, &panel.series, draw_dots)?;
        }
        Ok(())
    })
}

/// A function that draws one series. Its last argument is the number of the series, which decides the colour.
type DrawSeries = fn(&Chart<'_, '_>, &Series, usize) -> Drawn;

fn draw_with_legend(area: &Area<'_>, axes: Axes<'_>, series: &[Series], draw: DrawSeries) -> Result<()> {
    let names = text_width(series.iter().map(|one| one.name.as_str())) + 4 * MARGIN;
    let (left, right) = area.split_horizontally(WIDTH - names.min(WIDTH / 2));
    draw_series(&left, axes, series, draw)?;
    draw_legend(&right, series)
}

fn draw_series(area: &Area<'_>, axes: Axes<'_>, series: &[Series], draw: DrawSeries) -> Result<()> {
    let points = || series.iter().flat_map(|one| &one.points).filter(|point| point.1.is_finite());
    let most = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(0.0, f64::max);
    let y_max = if most(|point| point.1) > 0.0 { 1.05 * most(|point| point.1) } else { 1.0 };
    let x = match axes.ticks.len() {
        0 => 0.0..most(|point| point.0).max(axes.x_end_min).max(1e-3),
        ticks => -0.3..ticks as f64 - 0.7,
    };
    let mut chart = ChartBuilder::on(area)
        .margin_left(MARGIN)
        .margin_right(2 * MARGIN)
        .set_label_area_size(LabelAreaPosition::Left, 6 * MARGIN)
        .set_label_area_size(LabelAreaPosition::Bottom, AXIS_HEIGHT)
        .build_cartesian_2d(x, 0.0..y_max)
        .map_err(failed)?;
    let mut shown = chart.configure_mesh();
    shown.x_label_formatter(&|figure| on_axis(*figure)).y_label_formatter(&|figure| on_axis(*figure));
    shown.x_desc(axes.x).y_desc(axes.y).light_line_style(WHITE);
    shown.label_style((FONT, TEXT_SIZE)).axis_desc_style((FONT, TEXT_SIZE));
    if !axes.ticks.is_empty() {
        shown.disable_x_mesh().x_labels(0);
    }
    shown.draw().map_err(failed)?;
    draw_ticks(&chart, axes.ticks).map_err(failed)?;
    for (one, at) in series.iter().zip(0..) {
        draw(&chart, one, at).map_err(failed)?;
    }
    Ok(())
}

fn draw_ticks(chart: &Chart<'_, '_>, ticks: &[String]) -> Drawn {
    for (tick, at) in ticks.iter().zip(0..) {
        let below = style(TEXT_SIZE, &BLACK, (HPos::Center, VPos::Top));
        let text = Text::new(tick.clone(), (0, 6), below);
        chart.plotting_area().draw(&(EmptyElement::at((f64::from(at), 0.0)) + text))?;
    }
    Ok(())
}

/// Returns the style of the line with this number. If all colours are used up, further lines repeat them and
/// are thin.
fn stroke(at: usize) -> ShapeStyle {
    let width = if at < COLOURS.len() { 2 } else { 1 };
    COLOURS[at % COLOURS.len()].stroke_width(width)
}

/// The radius of a dot in pixels: of a dot on a line, and of a dot that is not joined to others.
const DOT_ON_LINE: u32 = 2;
const DOT_ALONE: u32 = 1;

fn draw_dots(chart: &Chart<'_, '_>, series: &Series, at: usize) -> Drawn {
    let dot =
        |point: &(f64, f64)| chart.plotting_area().draw(&Circle::new(*point, DOT_ALONE, stroke(at).filled()));
    series.points.iter().filter(|point| point.1.is_finite()).try_for_each(dot)
}

fn draw_line(chart: &Chart<'_, '_>, series: &Series, at: usize) -> Drawn {
    let area = chart.plotting_area();
    let points: Vec<(f64, f64)> = series.points.iter().filter(|point| point.1.is_finite()).copied().collect();
    let dot = |point: &(f64, f64)| area.draw(&Circle::new(*point, DOT_ON_LINE, stroke(at).filled()));
    points.iter().try_for_each(dot)?;
    area.draw(&PathElement::new(points, stroke(at)))
}

fn draw_legend(area: &Area<'_>, series: &[Series]) -> Result<()> {
    let beside = style(TEXT_SIZE, &BLACK, (HPos::Left, VPos::Center));
    for (one, at) in series.iter().zip(0..) {
        let y = (TEXT_HEIGHT * at + 2 * MARGIN) as i32;
        area.draw(&PathElement::new([(0, y), (24, y)], stroke(at as usize))).map_err(failed)?;
        area.draw_text(&one.name, &beside, (30, y)).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caption() -> Caption {
        let long = "a line that goes on ".repeat(20);
        Caption { title: "throughput < & >".to_owned(), lines: vec![long] }
    }

    fn bar(label: &str, value: f64) -> Bar {
        let (label, note) = (label.to_owned(), "note".to_owned());
        Bar { label, value, note, is_sound: true, published: Some(8.0), demanded: Some(2.0) }
    }

    /// Letters with a meaning in SVG (such as `&`) are escaped. A figure that is not a number has no bar.
    #[test]
    fn bars_have_their_names_figures_and_markers() {
        let all = [bar("a & b", 3.0), bar("none", f64::NAN), bar("less", -1.0)];
        let svg = bars(&caption(), "times", &all).expect("a chart");
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        assert!(
            svg.contains("a &amp; b") && svg.contains("&lt; &amp; &gt;") && svg.contains("times"),
            "{svg}"
        );
        assert!(!svg.contains("NaN"), "{svg}");
        assert_eq!(svg.matches("<polygon").count(), 3, "a diamond for each published value");
    }

    #[test]
    fn lines_have_a_legend_and_ticks() {
        let series = |name: &str| Series { name: name.to_owned(), points: vec![(0.0, 1.0), (1.0, f64::NAN)] };
        let all: Vec<Series> = (0..10).map(|at| series(&format!("series {at}"))).collect();
        let ticks = ["10".to_owned(), "50".to_owned()];
        let axes = Axes { x: "lambda", y: "tps", ticks: &ticks, x_end_min: 0.0 };
        let svg = lines(&caption(), axes, &all).expect("a chart");
        assert!((0..10).all(|at| svg.contains(&format!("series {at}"))), "{svg}");
        assert!(svg.contains(">\n50\n<") || svg.contains(">50<"), "{svg}");
        assert!(!svg.contains("NaN"), "{svg}");
        let nothing = lines(&caption(), Axes { ticks: &[], ..axes }, &[]).expect("an empty chart");
        assert!(nothing.contains("lambda"), "{nothing}");
    }

    #[test]
    fn dots_are_not_joined() {
        let series = |name: &str| Series { name: name.to_owned(), points: vec![(0.0, 1.0), (1.0, 2.0)] };
        let axes = Axes { x: "seconds", y: "MiB", ticks: &[], x_end_min: 0.0 };
        let svg = dots(&caption(), axes, &[series("write"), series("read")]).expect("a chart");
        assert_eq!(svg.matches("<circle").count(), 4, "{svg}");
        assert!(svg.contains("read") && svg.contains("write"), "{svg}");
    }

    #[test]
    fn figures_have_as_many_digits_as_tell_something() {
        let texts = [0.0123, 3.0, 123.4, 1_234_567.0, -1234.0].map(figure);
        assert_eq!(texts, ["0.01230", "3.00", "123", "1,234,567", "-1,234"]);
        assert_eq!([0.0, 0.25, 20.0, 2500.0].map(on_axis), ["0", "0.25", "20", "2,500"]);
    }

    #[test]
    fn long_lines_are_broken_between_words() {
        let lines = broken(&"word ".repeat(100));
        assert!(
            lines.len() > 1 && lines.iter().all(|line| line.chars().count() <= LINE_LETTERS),
            "{lines:?}"
        );
    }
}
