//! Table and plot of `bench tip --live`.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::live::{Cell, LiveResults, Mode};
use crate::plot::register;
use crate::table::{plain_table, seconds};

/// The results for the reader.
pub fn table(results: &LiveResults) -> String {
    let mut table = plain_table(&[
        "program",
        "disks",
        "mode",
        "plain (spread)",
        "hinted (spread)",
        "ratio",
        "95%",
        "target",
        "",
    ]);
    for cell in &results.cells {
        let time = |mode| {
            cell.summary(mode).map_or("–".into(), |s| {
                format!("{} ({}–{})", seconds(s.median), seconds(s.min), seconds(s.max))
            })
        };
        let ratio = cell.ratio();
        let verdict = match (cell.outputs_equal, cell.target()) {
            (false, _) => "OUTPUT DIFFERS",
            (true, Some((_, true))) => "met",
            (true, Some((_, false))) => "NOT MET",
            (true, None) => "",
        };
        table.add_row(vec![
            cell.subject.name().into(),
            cell.disks.to_string(),
            cell.mode.name().into(),
            time(Mode::Plain),
            time(cell.mode),
            ratio.map_or("–".into(), |ratio| format!("{:.2}", ratio.value)),
            ratio.map_or("–".into(), |ratio| format!("{:.2}–{:.2}", ratio.low, ratio.high)),
            cell.target().map_or(String::new(), |(target, _)| format!("≤ {target:.2}")),
            verdict.into(),
        ]);
    }
    let cost = results.cost.as_ref().map_or(String::new(), |cost| {
        format!(
            "\nA hint: {:.0} ns in calls of a thousand, {:.0} ns in calls of one (≤ 100 ns \
             amortised). A million outstanding segments: {:.1} MiB (≤ 64 MiB).",
            cost.batched_ns,
            cost.single_ns,
            cost.million_bytes as f64 / 1_048_576.0
        )
    });
    format!("{table}{cost}")
}

const ROW: i32 = 30;
const LEFT: i32 = 330;
const FULL: f64 = 480.0;

/// Draws each cell's ratio as a bar, with its target as a line: PATH.svg and PATH.png.
///
/// # Errors
/// If a file cannot be written.
pub fn draw(results: &LiveResults, path: &Path) -> Result<Vec<PathBuf>> {
    register()?;
    let size = (900, 70 + ROW as u32 * results.cells.len() as u32);
    let paths = ["svg", "png"].map(|ending| path.with_extension(ending));
    let failed = |error: String| anyhow!("draw {}: {error}", path.display());
    paint(&SVGBackend::new(&paths[0], size).into_drawing_area(), results).map_err(failed)?;
    paint(&BitMapBackend::new(&paths[1], size).into_drawing_area(), results).map_err(failed)?;
    Ok(paths.to_vec())
}

fn paint<B: DrawingBackend>(
    area: &DrawingArea<B, plotters::coord::Shift>,
    results: &LiveResults,
) -> std::result::Result<(), String> {
    let error = |error: DrawingAreaErrorKind<B::ErrorType>| error.to_string();
    area.fill(&WHITE).map_err(error)?;
    let title = format!("Hinted over plain time, {} (line: target)", results.profile);
    let ink = RGBColor(0x22, 0x26, 0x2b);
    area.draw(&Text::new(title, (20, 20), ("sans-serif", 20).into_font().color(&ink)))
        .map_err(error)?;
    for (row, cell) in results.cells.iter().enumerate() {
        let top = 55 + ROW * row as i32;
        draw_cell(area, cell, top).map_err(error)?;
    }
    area.present().map_err(error)
}

fn draw_cell<B: DrawingBackend>(
    area: &DrawingArea<B, plotters::coord::Shift>,
    cell: &Cell,
    top: i32,
) -> std::result::Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let Some(ratio) = cell.ratio() else { return Ok(()) };
    let ink = RGBColor(0x22, 0x26, 0x2b);
    let font = ("sans-serif", 16).into_font().color(&ink);
    let disks = if cell.disks == 1 { "disk" } else { "disks" };
    let name = format!("{}, {} {disks}, {}", cell.subject.name(), cell.disks, cell.mode.name());
    area.draw(&Text::new(name, (20, top + 4), font.clone()))?;
    let right = |value: f64| LEFT + (value.min(1.1) * FULL) as i32;
    let colour = match cell.target() {
        Some((_, false)) => RGBColor(0xc6, 0x3d, 0x2f),
        _ => RGBColor(0x1f, 0x77, 0xb4),
    };
    area.draw(&Rectangle::new([(LEFT, top), (right(ratio.value), top + 18)], colour.filled()))?;
    if let Some((target, _)) = cell.target() {
        let x = right(target);
        area.draw(&PathElement::new([(x, top - 4), (x, top + 22)], ink.stroke_width(2)))?;
    }
    let text = format!("{:.2}", ratio.value);
    area.draw(&Text::new(text, (right(ratio.value).max(LEFT) + 8, top + 4), font))
}
