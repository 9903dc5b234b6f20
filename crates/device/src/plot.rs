//! The paper's Figure 2 for the device at hand: sequential rate by position
//! and seek time by distance, and beside them throughput over depth.

use std::path::Path;
use std::sync::Once;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use crate::error::{Error, Result};
use crate::profile::DeviceProfile;

const SIZE: (u32, u32) = (1440, 460);
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(0x1f, 0x77, 0xb4);

/// One panel: points with their intervals.
struct Panel<'a> {
    title: &'a str,
    x: &'a str,
    y: &'a str,
    points: Vec<(f64, [f64; 3])>,
}

/// Draws the curves into `path`, SVG or PNG by its ending.
///
/// # Errors
/// The ending is another one, or the file cannot be written.
pub fn draw(profile: &DeviceProfile, path: &Path) -> Result<()> {
    let failed = |reason: String| Error::Plot { path: path.to_owned(), reason };
    static FONT_ONCE: Once = Once::new();
    FONT_ONCE.call_once(|| {
        // A font of our own: machines without a desktop have none.
        let _ = register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT);
    });
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("svg") => paint(&SVGBackend::new(path, SIZE).into_drawing_area(), profile),
        Some("png") => paint(&BitMapBackend::new(path, SIZE).into_drawing_area(), profile),
        _ => Err("give a name that ends in .svg or .png".into()),
    }
    .map_err(failed)
}

fn panels(profile: &DeviceProfile) -> Vec<Panel<'static>> {
    let interval = |e: &crate::estimate::Estimate| [e.value, e.low, e.high];
    let mut panels = vec![Panel {
        title: "Sequential rate",
        x: "position (share of the size)",
        y: "MB/s",
        points: profile
            .sequential
            .by_position
            .iter()
            .map(|place| (place.position, interval(&place.mb_s)))
            .collect(),
    }];
    panels.push(match &profile.seek {
        Some(seek) => Panel {
            title: "Seek time",
            x: "distance (share of the size)",
            y: "ms",
            points: seek
                .by_distance
                .iter()
                .map(|point| (point.distance, interval(&point.time_us.scaled(1e-3))))
                .collect(),
        },
        None => Panel {
            title: "Random request",
            x: "size (KiB)",
            y: "ms",
            points: profile
                .requests
                .iter()
                .map(|point| (point.bytes as f64 / 1024.0, interval(&point.time_us.scaled(1e-3))))
                .collect(),
        },
    });
    panels.push(Panel {
        title: "Random 4 KiB reads",
        x: "at once",
        y: "reads/s",
        points: profile
            .parallelism
            .depths
            .iter()
            .map(|depth| (f64::from(depth.depth), interval(&depth.reads_per_s)))
            .collect(),
    });
    panels
}

fn paint<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    profile: &DeviceProfile,
) -> std::result::Result<(), String> {
    let words = |error: DrawingAreaErrorKind<B::ErrorType>| error.to_string();
    area.fill(&WHITE).map_err(words)?;
    let title = format!("{} ({})", profile.device.name, profile.device.id);
    let area = area.titled(&title, (FONT, 22)).map_err(words)?;
    for (area, panel) in area.split_evenly((1, 3)).iter().zip(panels(profile)) {
        panel.paint(area).map_err(words)?;
    }
    area.present().map_err(words)
}

impl Panel<'_> {
    fn paint<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> std::result::Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let right = self.points.iter().map(|(x, _)| *x).fold(f64::MIN_POSITIVE, f64::max);
        let top = self.points.iter().map(|(_, y)| y[0]).fold(f64::MIN_POSITIVE, f64::max) * 1.25;
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, (FONT, 20))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(62)
            .build_cartesian_2d(0.0..right * 1.03, 0.0..top)?;
        chart.configure_mesh().x_desc(self.x).y_desc(self.y).label_style((FONT, 15)).draw()?;
        chart.draw_series(LineSeries::new(self.points.iter().map(|(x, y)| (*x, y[0])), &INK))?;
        let bars = self.points.iter().map(|(x, [value, low, high])| {
            let low = low.max(0.0);
            // One that is wholly below the axis lies on it.
            let high = high.min(top).max(low);
            ErrorBar::new_vertical(*x, low, value.clamp(low, high), high, INK.filled(), 6)
        });
        chart.draw_series(bars)?;
        Ok(())
    }
}
