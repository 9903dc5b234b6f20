//! PostgreSQL: four relations in the manner of AS3AP, and queries on them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::server::{self, Home, Server};
use super::{Application, Case, Setup};
use crate::digest::{self, Digest};
use crate::generate::scaled;
use crate::launch::{Launch, Measured};
use crate::process::{self, Output, Usage};
use crate::rng::Rng;
use crate::tools::{POSTGRES, PSQL, Tool};

/// Section 3.1: four relations of AS3AP in 500 MB of disk space, with indexes.
#[derive(Debug)]
pub struct PostgreSql;

/// Rows of each relation: with their indexes about 500 MB in all.
const ROWS: u64 = 600_000;
/// Bump when the relations change, so that the kept copy is made anew.
const GENERATION: u32 = 1;

impl Application for PostgreSql {
    fn name(&self) -> &'static str {
        "postgresql"
    }

    fn about(&self) -> &'static str {
        "eight queries on four AS3AP-like relations, 500 MB with indexes"
    }

    fn is_papers(&self) -> bool {
        true
    }

    fn tools(&self) -> &'static [Tool] {
        &[POSTGRES, PSQL]
    }

    /// A server reads no other version's data.
    fn data_tools(&self) -> &'static [Tool] {
        &[POSTGRES]
    }

    fn case_names(&self) -> Vec<&'static str> {
        QUERIES.iter().map(|query| query.name).collect()
    }

    fn prepare(&self, setup: &Setup) -> Result<()> {
        let rows = rows(setup);
        let data = data_directory(setup);
        let version = server::version()?;
        let name = format!("postgresql{version}-{GENERATION}-{}-{rows}", setup.seed);
        let kept = setup.cache.join(name);
        if !kept.is_dir() {
            build(&data, rows, setup.seed)?;
            let partial = kept.with_extension("partial");
            let _ = fs::remove_dir_all(&partial);
            process::copy_tree(&data, &partial)?;
            return fs::rename(&partial, &kept)
                .with_context(|| format!("rename {}", partial.display()));
        }
        process::copy_tree(&kept, &data)
    }

    fn cases(&self, setup: &Setup) -> Result<Vec<Box<dyn Case>>> {
        let rows = rows(setup);
        let case = |query: &Query| -> Box<dyn Case> {
            let sql = query.sql.replace("{rows}", &rows.to_string());
            Box::new(QueryCase { data: data_directory(setup), query: *query, sql })
        };
        Ok(QUERIES.iter().map(case).collect())
    }
}

fn rows(setup: &Setup) -> u64 {
    scaled(ROWS, setup.scale, 2000)
}

fn data_directory(setup: &Setup) -> PathBuf {
    setup.directory.join("data")
}

/// Makes the data directory and the relations.
fn build(data: &Path, rows: u64, seed: u64) -> Result<()> {
    let home = Home::new()?;
    fs::create_dir(data).with_context(|| format!("create {}", data.display()))?;
    let (user, group) = server::user()?;
    std::os::unix::fs::chown(data, Some(user), Some(group)).context("give away the data")?;
    let initdb = home
        .command(server::program("initdb")?)
        .args(["-A", "trust", "-U", "postgres", "--locale=C", "-E", "UTF8", "--no-sync", "-D"])
        .arg(data);
    let made = initdb.command().output().context("start initdb")?;
    let errors = String::from_utf8_lossy(&made.stderr);
    ensure!(made.status.success(), "initdb failed: {errors}");
    let running = Server::start(&home, &Server::command(&home, data)?)?;
    let mut session = running.session(&home.path().join("results"))?;
    session.execute("SET maintenance_work_mem = '256MB'; SET client_min_messages = warning;")?;
    for relation in RELATIONS {
        session.execute(&relation.create(rows, seed))?;
    }
    // Freezing writes the hint bits, so that queries write nothing.
    session.execute("VACUUM (FREEZE, ANALYZE);\nCHECKPOINT;")?;
    session.close()?;
    let (status, _) = running.stop()?;
    ensure!(status.success(), "the server ended with {}", process::describe(status));
    Ok(())
}

/// One of the four relations: AS3AP's attributes with their distributions.
struct Relation {
    name: &'static str,
    /// `col_int`, unclustered: from `i`, the row's place in the file, and `p`,
    /// a random permutation of these.
    col_int: &'static str,
}

const RELATIONS: &[Relation] = &[
    // All attributes unique.
    Relation { name: "uniques", col_int: "p" },
    // A hundred values of each attribute.
    Relation { name: "hundred", col_int: "p % 100" },
    // A tenth as many values as rows.
    Relation { name: "tenpct", col_int: "p / 10" },
    // As the first, in another order.
    Relation { name: "updates", col_int: "p" },
];

impl Relation {
    /// Statements that make it. Rows are inserted in the order of their keys,
    /// so the index on the key is clustered and all others are not.
    fn create(&self, rows: u64, seed: u64) -> String {
        let Self { name, col_int } = self;
        // A permutation of its own for each relation, or a join through an
        // unclustered index would follow the order of the file.
        let seed = Rng::new(seed, name).below(1 << 31);
        format!(
            "CREATE TABLE {name} (col_key int NOT NULL, col_int int NOT NULL,
                 col_signed int, col_float real, col_double double precision,
                 col_decim numeric(18, 2), col_date date, col_code char(10),
                 col_name char(20), col_address varchar(80));
             INSERT INTO {name}
                 SELECT i, {col_int}, p - {rows} / 2, p / 7.0, p * 1.5, p / 100.0,
                        date '1900-01-01' + p % 36500, lpad(to_hex(p), 10, 'c'),
                        'name' || lpad((p % 1000)::text, 8, '0'),
                        rpad('address', 20 + p % 20, to_hex(p))
                 FROM (SELECT i, (row_number() OVER
                              (ORDER BY hashint8extended(i, {seed}), i) - 1)::int AS p
                       FROM generate_series(0, {rows} - 1) AS i) AS numbered
                 ORDER BY i;
             CREATE UNIQUE INDEX {name}_key ON {name} (col_key);
             CREATE INDEX {name}_int ON {name} (col_int);
             CREATE INDEX {name}_code ON {name} (col_code);
             CREATE INDEX {name}_name ON {name} (col_name);"
        )
    }
}

/// A query and how it has to be executed.
#[derive(Clone, Copy, Debug)]
struct Query {
    name: &'static str,
    /// With `{rows}` for the number of rows of a relation.
    sql: &'static str,
    /// Methods that the planner must not use. Bitmap scans, which come with
    /// a prefetching of their own, are younger than the paper's version 7.0.3
    /// and off in all.
    without: &'static [&'static str],
    /// What the plan must say.
    plan: &'static [&'static str],
}

const QUERIES: &[Query] = &[
    Query {
        name: "select-1pct-unclustered",
        sql: "SELECT col_key, col_int, col_signed, col_code, col_double, col_name \
              FROM updates WHERE col_int < {rows} / 100",
        without: &["seqscan"],
        plan: &["Index Scan using updates_int"],
    },
    Query {
        name: "select-10pct-unclustered",
        sql: "SELECT col_key, col_int, col_signed, col_code, col_double, col_name \
              FROM tenpct WHERE col_int < {rows} / 100",
        without: &["seqscan"],
        plan: &["Index Scan using tenpct_int"],
    },
    Query {
        name: "range-clustered",
        sql: "SELECT col_key, col_int, col_signed, col_code, col_double, col_name \
              FROM updates WHERE col_key BETWEEN {rows} / 2 AND {rows} / 2 + {rows} / 10",
        without: &["seqscan"],
        plan: &["Index Scan using updates_key"],
    },
    Query {
        name: "scan",
        sql: "SELECT * FROM uniques WHERE col_signed = 1",
        without: &[],
        plan: &["Seq Scan on uniques"],
    },
    Query {
        name: "nested-loop-join",
        sql: "SELECT updates.col_key, uniques.col_key, uniques.col_name \
              FROM updates JOIN uniques USING (col_int) WHERE updates.col_key < {rows} / 200",
        without: &["seqscan", "hashjoin", "mergejoin", "memoize", "material"],
        plan: &["Nested Loop", "Index Scan using uniques_int"],
    },
    Query {
        name: "merge-join",
        sql: "SELECT count(*), sum(uniques.col_double - updates.col_double) \
              FROM uniques JOIN updates USING (col_key)",
        without: &["seqscan", "sort", "hashjoin", "nestloop"],
        plan: &["Merge Join", "Index Scan using uniques_key", "Index Scan using updates_key"],
    },
    Query {
        name: "hash-join",
        sql: "SELECT count(*), sum(uniques.col_signed), min(tenpct.col_code) \
              FROM uniques JOIN tenpct ON uniques.col_int = tenpct.col_int",
        without: &["mergejoin", "nestloop", "indexscan", "indexonlyscan"],
        plan: &["Hash Join", "Seq Scan on uniques", "Seq Scan on tenpct"],
    },
    Query {
        name: "aggregate",
        sql: "SELECT col_int, count(*), min(col_key), max(col_signed), avg(col_double) \
              FROM hundred GROUP BY col_int ORDER BY col_int",
        without: &["indexscan", "indexonlyscan"],
        plan: &["HashAggregate", "Seq Scan on hundred"],
    },
];

struct QueryCase {
    data: PathBuf,
    query: Query,
    sql: String,
}

impl Case for QueryCase {
    fn name(&self) -> &str {
        self.query.name
    }

    fn shown(&self) -> String {
        self.sql.clone()
    }

    fn is_good(&self, run: &Digest) -> bool {
        run.status == "exit 0, server exit 0"
    }

    /// A server of its own for the one query. Its start, the connection and
    /// the planning come before the clock: what is measured is the execution.
    /// Only the statistics are those of the server's whole life.
    fn run(&self, launch: &Launch<'_>) -> Result<Measured> {
        let home = Home::new()?;
        let output = Output::new()?;
        let statistics = home.path().join("statistics.json");
        let command = Server::command(&home, &self.data)?;
        let runahead = home.reachable(launch.runahead)?;
        let running = Server::start(&home, &launch.wrap(&command, &runahead, &statistics))?;
        let mut session = running.session(&output.path("stdout"))?;
        self.plan(&mut session, &output.path("stdout"))?;
        let usage_before = server::usage_of(session.backend)?;
        let counts_before = launch.place.counts()?;
        let started = Instant::now();
        let said = session.execute(&format!("{};", self.sql))?;
        let elapsed_s = started.elapsed().as_secs_f64();
        let counts = launch.place.counts()?.since(&counts_before);
        let usage = since(&server::usage_of(session.backend)?, &usage_before);
        fs::write(output.path("stderr"), said).context("keep the client's messages")?;
        let status = session.close()?;
        let (server_status, _) = running.stop()?;
        Ok(Measured {
            elapsed_s,
            usage,
            // `usage` is of one process, which has no other thread.
            first_thread: None,
            counts,
            statistics: launch.statistics(&statistics)?,
            recording: launch.recording(&statistics)?,
            digest: Digest {
                status: format!(
                    "{}, server {}",
                    process::describe(status),
                    process::describe(server_status)
                ),
                stdout: digest::of_file(&output.path("stdout"))?,
                stderr: digest::of_file(&output.path("stderr"))?,
                files: String::new(),
            },
            output,
        })
    }
}

impl QueryCase {
    /// Has the server plan the query and makes sure that the plan is the one
    /// meant. It also goes to the results, to be compared with them.
    fn plan(&self, session: &mut server::Session, results: &Path) -> Result<()> {
        let without: String = self
            .query
            .without
            .iter()
            .map(|method| format!("SET enable_{method} = off; "))
            .collect();
        session.execute(&format!(
            "SET enable_bitmapscan = off; {without}\nEXPLAIN (COSTS OFF) {};",
            self.sql
        ))?;
        let plan =
            fs::read_to_string(results).with_context(|| format!("read {}", results.display()))?;
        for part in self.query.plan {
            ensure!(
                plan.contains(part),
                "the server plans {} without {part:?}:\n{plan}",
                self.query.name
            );
        }
        Ok(())
    }
}

fn since(now: &Usage, then: &Usage) -> Usage {
    Usage {
        cpu_s: now.cpu_s - then.cpu_s,
        system_s: now.system_s - then.system_s,
        minor_faults: now.minor_faults - then.minor_faults,
        major_faults: now.major_faults - then.major_faults,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_have_distinct_names_and_their_rows() {
        let setup = Setup { directory: "/d".into(), cache: "/c".into(), scale: 0.01, seed: 1 };
        let cases = PostgreSql.cases(&setup).unwrap();
        let mut names: Vec<_> = cases.iter().map(|case| case.name().to_owned()).collect();
        assert_eq!(names, PostgreSql.case_names());
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 8);
        assert!(cases[0].shown().contains("col_int < 6000 / 100"), "{}", cases[0].shown());
        assert!(cases.iter().all(|case| !case.shown().contains('{')));
    }

    #[test]
    fn relations_differ_and_depend_on_the_seed() {
        let create = |relation: usize, seed| RELATIONS[relation].create(100, seed);
        assert_eq!(create(0, 1), create(0, 1));
        assert_ne!(create(0, 1), create(0, 2));
        assert_ne!(create(0, 1).replace("uniques", "x"), create(1, 1).replace("hundred", "x"));
    }
}
