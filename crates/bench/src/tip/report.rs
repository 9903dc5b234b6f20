//! Table and plot of `bench tip --live`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::live::{Cell, LiveResults, Mode};
use crate::plot::{Drawn, FONT, Picture, write};
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

/// Draws each cell's ratio as a bar, with its target as a line: SVG or PNG by
/// the name's ending; for another one both.
///
/// # Errors
/// If a file cannot be written.
pub fn draw(results: &LiveResults, path: &Path) -> Result<Vec<PathBuf>> {
    write(results, path)
}

impl Picture for LiveResults {
    fn size(&self) -> (u32, u32) {
        (900, 70 + ROW as u32 * self.cells.len() as u32)
    }

    fn paint<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Drawn<B> {
        let title = format!("Hinted over plain time, {} (line: target)", self.profile);
        let ink = RGBColor(0x22, 0x26, 0x2b);
        area.draw(&Text::new(title, (20, 20), (FONT, 20).into_font().color(&ink)))?;
        for (row, cell) in self.cells.iter().enumerate() {
            draw_cell(area, cell, 55 + ROW * row as i32)?;
        }
        Ok(())
    }
}

fn draw_cell<B: DrawingBackend>(area: &DrawingArea<B, Shift>, cell: &Cell, top: i32) -> Drawn<B> {
    let Some(ratio) = cell.ratio() else { return Ok(()) };
    let ink = RGBColor(0x22, 0x26, 0x2b);
    let font = (FONT, 16).into_font().color(&ink);
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
