//! Throughput over concurrency, as in the paper's figures 3 to 8: a panel for
//! each workload and order, a line for each policy, the model and the optimum.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use plotters::coord::Shift;
use plotters::prelude::*;

use super::{Order, Point, Policy, StreamsResults, Workload};
use crate::plot::{Drawn, FONT, Picture, write};

const PANEL: (u32, u32) = (460, 330);

fn color(policy: Policy) -> RGBColor {
    match policy {
        Policy::Default => RGBColor(0x8c, 0x96, 0xa3),
        Policy::Aggressive => RGBColor(0xd0, 0x8a, 0x2e),
        Policy::Tuned => RGBColor(0x7a, 0x5a, 0xb0),
        Policy::Live => RGBColor(0x1f, 0x77, 0xb4),
    }
}

/// Name, colour, (handlers, MB/s).
type Line = (&'static str, RGBColor, Vec<(f64, f64)>);

const MODEL: RGBColor = RGBColor(0xc6, 0x3d, 0x2f);
const OPTIMUM: RGBColor = RGBColor(0x5a, 0xa4, 0x69);

/// Draws the results: SVG or PNG by the name's ending; for another one both.
/// Returns what was written.
///
/// # Errors
/// If there is nothing to draw or a file cannot be written.
pub fn draw(results: &StreamsResults, path: &Path) -> Result<Vec<PathBuf>> {
    ensure!(!results.points.is_empty(), "no point was measured: there is nothing to draw");
    let mut panels: Vec<(Workload, Order)> = Vec::new();
    for point in &results.points {
        if !panels.contains(&(point.workload, point.order)) {
            panels.push((point.workload, point.order));
        }
    }
    write(&Panels { results, panels }, path)
}

struct Panels<'a> {
    results: &'a StreamsResults,
    panels: Vec<(Workload, Order)>,
}

impl Panels<'_> {
    /// Rows and columns.
    fn shape(&self) -> (usize, usize) {
        let columns = self.panels.len().min(3);
        (self.panels.len().div_ceil(columns), columns)
    }
}

impl Picture for Panels<'_> {
    fn size(&self) -> (u32, u32) {
        let (rows, columns) = self.shape();
        (PANEL.0 * columns as u32, PANEL.1 * rows as u32)
    }

    fn paint<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Drawn<B> {
        for (part, panel) in area.split_evenly(self.shape()).iter().zip(&self.panels) {
            let of = |point: &&Point| (point.workload, point.order) == *panel;
            let points: Vec<&Point> = self.results.points.iter().filter(of).collect();
            panel_of(part, *panel, &points, self.results)?;
        }
        Ok(())
    }
}

fn panel_of<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    (workload, order): (Workload, Order),
    points: &[&Point],
    results: &StreamsResults,
) -> Drawn<B> {
    let rates = points.iter().flat_map(|point| {
        let policies = Policy::ALL.iter().filter_map(|policy| point.mb_s(*policy));
        policies.chain(point.model_mb_s).chain(point.optimum_mb_s)
    });
    let top = rates.fold(1.0, f64::max) * 1.1;
    let most = points.iter().map(|point| point.handlers).max().unwrap_or(1).max(2);
    let least = points.iter().map(|point| point.handlers).min().unwrap_or(1);
    let title = format!("{} on {}, {}", workload.name(), results.profile, order.name());
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 17))
        .margin(8)
        .x_label_area_size(34)
        .y_label_area_size(44)
        .build_cartesian_2d((f64::from(least)..f64::from(most)).log_scale().base(2.0), 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc("at once")
        .y_desc("MB/s")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .label_style((FONT, 13))
        .light_line_style(WHITE)
        .draw()?;
    let mut lines: Vec<Line> = Vec::new();
    let series = |of: &dyn Fn(&Point) -> Option<f64>| -> Vec<(f64, f64)> {
        let at = |point: &&Point| Some((f64::from(point.handlers), of(point)?));
        points.iter().filter_map(at).collect()
    };
    for policy in Policy::ALL {
        lines.push((policy.name(), color(policy), series(&|point| point.mb_s(policy))));
    }
    lines.push(("model", MODEL, series(&|point| point.model_mb_s)));
    lines.push(("optimum", OPTIMUM, series(&|point| point.optimum_mb_s)));
    for (name, color, line) in lines.into_iter().filter(|(.., line)| !line.is_empty()) {
        let circles = line.iter().map(|at| Circle::new(*at, 3, color.filled()));
        chart.draw_series(circles.collect::<Vec<_>>())?;
        chart
            .draw_series(LineSeries::new(line, color.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .label_font((FONT, 12))
        .background_style(WHITE.mix(0.8))
        .position(SeriesLabelPosition::LowerRight)
        .draw()
}
