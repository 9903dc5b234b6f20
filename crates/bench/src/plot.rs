//! Bars of elapsed time: plain, under Runahead, ideal; relative to the plain
//! run, as in the paper's figure 2, with the seconds beside them.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, register_font};

use crate::launch::Side;
use crate::results::{CaseResult, Results, SLOWER_ABOVE, make_parent};
use crate::summary::Summary;
use crate::table::{seconds, times};

pub(crate) const FONT: &str = "sans-serif";
pub(crate) const WIDTH: u32 = 1000;
pub(crate) const ROW_HEIGHT: u32 = 78;
pub(crate) const TOP: u32 = 84;
pub(crate) const BOTTOM: u32 = 46;
/// Where the bars begin; the names are left of it.
const BARS_LEFT: i32 = 300;
/// Where a bar of 100% ends; the seconds are right of it.
const BARS_RIGHT: i32 = 860;
const BAR_HEIGHT: i32 = 18;

pub(crate) const PLAIN: RGBColor = RGBColor(0x8c, 0x96, 0xa3);
pub(crate) const RUNAHEAD: RGBColor = RGBColor(0x1f, 0x77, 0xb4);
pub(crate) const SLOWER: RGBColor = RGBColor(0xc6, 0x3d, 0x2f);
pub(crate) const IDEAL: RGBColor = RGBColor(0x5a, 0xa4, 0x69);
const INK: RGBColor = RGBColor(0x22, 0x26, 0x2b);

/// Something to draw.
pub(crate) trait Picture {
    /// Width and height, pixels.
    fn size(&self) -> (u32, u32);

    /// Draws it on a white area.
    ///
    /// # Errors
    /// Why the file cannot be written.
    fn paint<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Drawn<B>;
}

/// What a drawing comes to.
pub(crate) type Drawn<B> =
    std::result::Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

/// Draws: SVG or PNG by the name's ending; for another ending both, with
/// theirs. Returns what was written.
///
/// # Errors
/// If a file cannot be written.
pub(crate) fn write(picture: &impl Picture, path: &Path) -> Result<Vec<PathBuf>> {
    make_parent(path)?;
    register()?;
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let paths = match ending {
        "svg" | "png" => vec![path.to_owned()],
        _ => ["svg", "png"].map(|ending| path.with_extension(ending)).to_vec(),
    };
    for path in &paths {
        let drawn = if path.extension().is_some_and(|ending| ending == "svg") {
            on_white(&SVGBackend::new(path, picture.size()).into_drawing_area(), picture)
        } else {
            on_white(&BitMapBackend::new(path, picture.size()).into_drawing_area(), picture)
        };
        drawn.map_err(|error| anyhow!("draw {}: {error}", path.display()))?;
    }
    Ok(paths)
}

fn on_white<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    picture: &impl Picture,
) -> std::result::Result<(), String> {
    let drawn = area.fill(&WHITE).and_then(|()| picture.paint(area));
    drawn.and_then(|()| area.present()).map_err(|error| error.to_string())
}

/// A font of our own: machines without a desktop have none.
fn register() -> Result<()> {
    let font = epaint_default_fonts::UBUNTU_LIGHT;
    for style in [FontStyle::Normal, FontStyle::Bold] {
        register_font(FONT, style, font).map_err(|_| anyhow!("the built-in font is damaged"))?;
    }
    Ok(())
}

/// Draws the results into the files that [`write`] says.
///
/// # Errors
/// If there is nothing to draw or a file cannot be written.
pub fn draw(results: &Results, path: &Path) -> Result<Vec<PathBuf>> {
    let rows: Vec<Row> = results.cases.iter().filter_map(Row::of).collect();
    anyhow::ensure!(!rows.is_empty(), "no case was measured: there is nothing to draw");
    write(&Bars { results, rows }, path)
}

struct Bars<'a> {
    results: &'a Results,
    rows: Vec<Row>,
}

/// One case, as shares of the plain time.
#[derive(Debug, PartialEq)]
struct Row {
    title: String,
    plain_s: f64,
    runahead_s: f64,
    ideal_s: Option<f64>,
}

impl Row {
    fn of(case: &CaseResult) -> Option<Self> {
        Some(Self {
            title: case.title(),
            plain_s: Summary::of(&case.elapsed(Side::Plain))?.median,
            runahead_s: Summary::of(&case.elapsed(Side::Runahead))?.median,
            ideal_s: case.ideal.map(|ideal| ideal.seconds),
        })
    }
}

impl Picture for Bars<'_> {
    fn size(&self) -> (u32, u32) {
        (WIDTH, TOP + BOTTOM + ROW_HEIGHT * self.rows.len() as u32)
    }

    fn paint<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Drawn<B> {
        let longest = self.rows.iter().map(Row::longest).fold(1.0, f64::max);
        let canvas = Canvas::new(area, longest);
        let title = format!("Elapsed time on {}: {}", self.results.profile, self.results.benchmark);
        canvas.heading(&title, &[("plain", PLAIN), ("runahead", RUNAHEAD), ("ideal", IDEAL)])?;
        for (index, row) in self.rows.iter().enumerate() {
            canvas.row(row, (TOP + ROW_HEIGHT * index as u32) as i32)?;
        }
        canvas.axis((TOP + ROW_HEIGHT * self.rows.len() as u32) as i32, longest)
    }
}

impl Row {
    fn share(&self, time_s: f64) -> f64 {
        if self.plain_s > 0.0 { time_s / self.plain_s } else { 0.0 }
    }

    /// Longest bar, as a share of the plain one.
    fn longest(&self) -> f64 {
        self.share(self.runahead_s).max(self.share(self.ideal_s.unwrap_or(0.0))).max(1.0)
    }
}

/// Groups of three bars, one group below the other, as shares of a time.
pub(crate) struct Canvas<'a, B: DrawingBackend> {
    area: &'a DrawingArea<B, Shift>,
    pixels_per_share: f64,
}

impl<'a, B: DrawingBackend> Canvas<'a, B> {
    /// For bars of which the longest is `longest`, as a share.
    pub(crate) fn new(area: &'a DrawingArea<B, Shift>, longest: f64) -> Self {
        Canvas { area, pixels_per_share: f64::from(BARS_RIGHT - BARS_LEFT) / longest }
    }

    fn text(&self, text: &str, at: (i32, i32), size: i32, from: HPos) -> Drawn<B> {
        let style =
            TextStyle::from((FONT, size).into_font()).color(&INK).pos(Pos::new(from, VPos::Center));
        self.area.draw(&Text::new(text.to_owned(), at, style))
    }

    /// The title, and what the colours mean.
    pub(crate) fn heading(&self, title: &str, legend: &[(&str, RGBColor)]) -> Drawn<B> {
        self.text(title, (20, 24), 24, HPos::Left)?;
        let mut left = BARS_LEFT;
        for (name, color) in legend {
            let swatch = [(left, 50), (left + 14, 64)];
            self.area.draw(&Rectangle::new(swatch, color.filled()))?;
            self.text(name, (left + 20, 57), 16, HPos::Left)?;
            left += 40 + 9 * name.len() as i32;
        }
        Ok(())
    }

    /// A group's name, left of its bars.
    pub(crate) fn name(&self, name: &str, top: i32) -> Drawn<B> {
        self.text(name, (BARS_LEFT - 14, top + BAR_HEIGHT * 3 / 2), 17, HPos::Right)
    }

    fn row(&self, row: &Row, top: i32) -> Drawn<B> {
        self.name(&row.title, top)?;
        let slower = row.runahead_s > row.plain_s * SLOWER_ABOVE;
        let color = if slower { SLOWER } else { RUNAHEAD };
        let faster = times(row.plain_s / row.runahead_s);
        self.bar(0, row.share(row.plain_s), &seconds(row.plain_s), top, PLAIN)?;
        let label = format!("{}   {faster}", seconds(row.runahead_s));
        self.bar(1, row.share(row.runahead_s), &label, top, color)?;
        if let Some(ideal_s) = row.ideal_s {
            self.bar(2, row.share(ideal_s), &seconds(ideal_s), top, IDEAL)?;
        }
        Ok(())
    }

    /// Bar `number` of the group that begins at `top`.
    pub(crate) fn bar(
        &self,
        number: i32,
        share: f64,
        label: &str,
        top: i32,
        color: RGBColor,
    ) -> Drawn<B> {
        let top = top + number * BAR_HEIGHT;
        let right = BARS_LEFT + (share * self.pixels_per_share).round().max(1.0) as i32;
        let corners = [(BARS_LEFT, top), (right, top + BAR_HEIGHT - 2)];
        self.area.draw(&Rectangle::new(corners, color.filled()))?;
        self.text(label, (right + 8, top + BAR_HEIGHT / 2), 15, HPos::Left)
    }

    /// Lines at round shares, behind the last group.
    pub(crate) fn axis(&self, bottom: i32, longest: f64) -> Drawn<B> {
        let step = if longest > 2.0 { longest.ceil() / 4.0 } else { 0.25 };
        let mut share = 0.0;
        while share <= longest + 1e-9 {
            let x = BARS_LEFT + (share * self.pixels_per_share).round() as i32;
            let line = [(x, TOP as i32 - 8), (x, bottom - 8)];
            self.area.draw(&PathElement::new(line, INK.mix(0.15)))?;
            self.text(&format!("{:.0}%", share * 100.0), (x, bottom + 8), 15, HPos::Center)?;
            share += step;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::example;

    fn results() -> Results {
        let mut slow = example(2.0, 2.5);
        slow.app = "postgresql".into();
        slow.case = "select-10pct-unclustered".into();
        Results {
            cases: vec![example(2.514, 0.1), slow, example(120.0, 40.0)],
            ..Results::begin("explicit", "cloud", 1.0, 1)
        }
    }

    #[test]
    fn both_kinds_are_drawn() {
        let directory = tempfile::tempdir().unwrap();
        let written = draw(&results(), &directory.path().join("plots/explicit")).unwrap();
        assert_eq!(written.len(), 2);
        let svg = std::fs::read_to_string(&written[0]).unwrap();
        for text in ["agrep", "postgresql/select-10pct-unclustered", "25.1×", "2.51 s", "125%"] {
            assert!(svg.contains(text), "no {text:?} in the drawing");
        }
        let png = std::fs::read(&written[1]).unwrap();
        assert!(png.starts_with(b"\x89PNG"));
        if let Some(keep) = std::env::var_os("RUNAHEAD_BENCH_KEEP_PLOT") {
            std::fs::copy(&written[1], keep).unwrap();
        }
    }

    #[test]
    fn the_ending_chooses() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.svg");
        assert_eq!(draw(&results(), &path).unwrap(), std::slice::from_ref(&path));
        assert!(!directory.path().join("a.png").exists());
    }

    #[test]
    fn nothing_to_draw_is_an_error() {
        let nothing = Results::begin("explicit", "cloud", 1.0, 1);
        assert!(draw(&nothing, Path::new("/nonexistent/x")).is_err());
    }
}
