//! Directories read ahead of a walk.

mod machine;

use machine::{Copy, Machine, TempDir, raw};
use runahead_emulate::arch::nr;
use runahead_emulate::frontier::{
    self, Ahead, BUFFER_LEN, Frontier, IN_MEMORY_MAX, LEAD_MAX, OPEN_MAX, Shared, Walk,
};
use runahead_emulate::scout::{Came, Scout};
use runahead_emulate::{Calls, Kernel, Mapped, Protecting};
use runahead_protocol::log::Directory;
use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// One reader, which does its jobs when it is told to.
struct Pool {
    frontier: RefCell<Frontier>,
    filled: Cell<u32>,
    /// Whether its reader waits for directories.
    waits: Cell<bool>,
}

impl Pool {
    fn new() -> Pool {
        let frontier = RefCell::new(Frontier::EMPTY);
        Pool { frontier, filled: Cell::new(0), waits: Cell::new(true) }
    }

    /// Does all that there is to do; how many jobs that was.
    fn run(&self, calls: &mut impl Calls) -> usize {
        let mut buffer = [0; BUFFER_LEN];
        let mut jobs = 0;
        loop {
            let job = self.frontier.borrow_mut().take();
            let Some(job) = job else { return jobs };
            if let Some(ino) = frontier::read(calls, self, &job, &mut buffer) {
                self.with(|frontier| frontier.was_read(ino, self.waits.get()));
            }
            jobs += 1;
        }
    }
}

impl Shared for Pool {
    fn with<R>(&self, act: impl FnOnce(&mut Frontier) -> R) -> R {
        act(&mut self.frontier.borrow_mut())
    }

    fn filled(&self) {
        self.filled.set(self.filled.get() + 1);
    }
}

/// `tops` directories with `subs` each, in which are `files` files.
fn tree(name: &str, tops: usize, subs: usize, files: usize) -> TempDir {
    let root = TempDir::new(name);
    for top in 0..tops {
        for sub in 0..subs {
            let path = root.0.join(format!("top{top}/sub{sub}"));
            fs::create_dir_all(&path).unwrap();
            (0..files).for_each(|file| drop(File::create(path.join(format!("file{file}")))));
        }
    }
    root
}

/// The directories below `root`, in the order of a walk in depth.
fn walk(root: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(root).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.push(entry.path());
            walk(&entry.path(), found);
        }
    }
}

fn open(machine: &mut Machine, path: &Path) -> i32 {
    let text = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let flags = (libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) as usize;
    let at = text.as_ptr().expose_provenance();
    machine.call(nr::OPENAT, [libc::AT_FDCWD as usize, at, flags, 0, 0, 0]) as i32
}

fn begin(machine: &mut Machine, pool: &Pool, path: &Path, after: u64) -> bool {
    let stat = fs::metadata(path).unwrap();
    let fd = open(machine, path);
    let walk = Walk { fd, dev: stat.dev(), ino: stat.ino(), after, files: true, fsuid: 0 };
    pool.with(|frontier| frontier.begin(&walk))
}

fn reached(pool: &Pool, path: &Path) -> bool {
    let stat = fs::metadata(path).unwrap();
    pool.with(|frontier| frontier.reached(stat.dev(), stat.ino())) != Ahead::Unread
}

#[test]
fn what_comes_behind_an_entry_is_read_in_depth_with_its_files() {
    let root = tree("walk", 4, 5, 3);
    let mut order = Vec::new();
    walk(&root.0, &mut order);
    let tops: Vec<_> = order.iter().filter(|path| path.parent() == Some(&root.0)).collect();
    let (mut machine, pool) = (Machine::new(), Pool::new());
    let second = fs::metadata(tops[1]).unwrap().ino();
    assert!(begin(&mut machine, &pool, &root.0, second));
    pool.run(&mut machine);
    for path in &order {
        let behind = path.starts_with(tops[2]) || path.starts_with(tops[3]);
        assert_eq!(reached(&pool, path), behind, "{}", path.display());
    }
    // Two trees: 12 directories and 30 files, each looked at once.
    assert_eq!(machine.count(nr::STATX), 12 + 30);
    assert!(machine.open.is_empty(), "all descriptors are closed: {:?}", machine.open);
    // The directories of the second reading come in the order of the walk.
    assert!(pool.filled.get() > 0);
}

#[test]
fn no_more_is_read_than_the_walk_may_leave_out_until_it_comes_there() {
    let root = tree("lead", 1, LEAD_MAX as usize + 40, 0);
    let mut order = Vec::new();
    walk(&root.0.join("top0"), &mut order);
    let (mut machine, pool) = (Machine::new(), Pool::new());
    assert!(begin(&mut machine, &pool, &root.0.join("top0"), 0));
    pool.run(&mut machine);
    let read = order.iter().filter(|path| is_read(&machine, path)).count();
    assert_eq!(read as u64, LEAD_MAX);
    // What comes first is read first.
    assert!(order[..LEAD_MAX as usize].iter().all(|path| is_read(&machine, path)));
    for path in &order[..10] {
        assert!(reached(&pool, path));
        assert!(reached(&pool, path), "a second call for its end");
    }
    pool.run(&mut machine);
    let read = order.iter().filter(|path| is_read(&machine, path)).count();
    assert_eq!(read as u64, LEAD_MAX + 10, "one more for each that was come to");
}

/// Whether a directory's attributes were asked for, by name.
fn is_read(machine: &Machine, path: &Path) -> bool {
    machine.named.iter().any(|name| Some(name.as_str()) == path.file_name().unwrap().to_str())
}

#[test]
fn a_walk_in_another_order_than_that_of_the_entries_has_the_rest_read() {
    let root = tree("order", 1, 9, 1);
    let top = root.0.join("top0");
    let mut order = Vec::new();
    walk(&top, &mut order);
    let (mut machine, pool) = (Machine::new(), Pool::new());
    let last = fs::metadata(order.last().unwrap()).unwrap().ino();
    assert!(begin(&mut machine, &pool, &top, last));
    pool.run(&mut machine);
    assert!(order.iter().all(|path| !reached(&pool, path)), "nothing comes behind the last");
    // The walk comes to one that was not read.
    let first = fs::metadata(&order[0]).unwrap().ino();
    assert!(begin(&mut machine, &pool, &top, first));
    pool.run(&mut machine);
    assert!(order.iter().all(|path| reached(&pool, path)));
}

#[test]
fn two_trees_are_walked_by_turns() {
    let (one, other) = (tree("one", 1, 6, 1), tree("other", 1, 6, 1));
    let (mut machine, pool) = (Machine::new(), Pool::new());
    let mut orders = [Vec::new(), Vec::new()];
    for (root, order) in [&one, &other].into_iter().zip(&mut orders) {
        walk(&root.0.join("top0"), order);
    }
    assert!(begin(&mut machine, &pool, &one.0.join("top0"), 0));
    one_job(&mut machine, &pool);
    one_job(&mut machine, &pool);
    assert!(orders[0].iter().any(|path| reached(&pool, path)));
    // It came true: what is left of it is still read.
    assert!(begin(&mut machine, &pool, &other.0.join("top0"), 0));
    pool.run(&mut machine);
    assert!(orders.iter().flatten().all(|path| reached(&pool, path)));

    // Nothing of this one is come to: it makes room for the next.
    let (wrong, right) = (tree("wrong", 1, 6, 1), tree("right", 1, 6, 1));
    assert!(begin(&mut machine, &pool, &wrong.0.join("top0"), 0));
    one_job(&mut machine, &pool);
    assert!(begin(&mut machine, &pool, &right.0.join("top0"), 0));
    pool.run(&mut machine);
    assert!(!reached(&pool, &wrong.0.join("top0/sub3")));
    assert!(reached(&pool, &right.0.join("top0/sub3")));
    assert!(machine.open.is_empty(), "{:?}", machine.open);
}

fn one_job(machine: &mut Machine, pool: &Pool) {
    let job = pool.with(|frontier| frontier.take()).unwrap();
    frontier::read(machine, pool, &job, &mut [0; BUFFER_LEN]);
}

#[test]
fn what_has_taken_a_directory_s_place_is_not_opened() {
    let root = tree("place", 1, 6, 0);
    let top = root.0.join("top0");
    let (mut machine, pool) = (Machine::new(), Pool::new());
    assert!(begin(&mut machine, &pool, &top, 0));
    one_job(&mut machine, &pool);
    let opened = machine.count(nr::OPENAT);
    for sub in 0..6 {
        fs::remove_dir(top.join(format!("sub{sub}"))).unwrap();
    }
    std::os::unix::fs::symlink("/proc", top.join("sub0")).unwrap();
    fs::write(top.join("sub1"), b"a file").unwrap();
    let fifo = std::ffi::CString::new(top.join("sub2").to_str().unwrap()).unwrap();
    // SAFETY: a path that lives through the call.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    pool.run(&mut machine);
    assert_eq!(machine.count(nr::OPENAT), opened, "nothing was opened");
    assert!(machine.open.is_empty());
    assert_eq!(pool.with(|frontier| frontier.ahead()), 0, "nor read");
}

#[test]
fn a_walk_is_begun_after_one_that_left_many_directories_open() {
    // Each sub-directory waits for its turn, and keeps its parent open.
    let root = tree("open", OPEN_MAX + 8, 2, 0);
    let other = tree("next", 1, 3, 0);
    let (mut machine, pool) = (Machine::new(), Pool::new());
    assert!(begin(&mut machine, &pool, &root.0, 0));
    // The tops only: what lies below them is put on the stack meanwhile.
    let mut jobs = Vec::new();
    one_job(&mut machine, &pool);
    while jobs.len() <= OPEN_MAX {
        jobs.push(pool.with(|frontier| frontier.take()).unwrap());
    }
    for job in jobs {
        frontier::read(&mut machine, &pool, &job, &mut [0; BUFFER_LEN]);
    }
    assert!(machine.open.len() >= OPEN_MAX - 1, "{}", machine.open.len());
    // No slot is free: it cannot be begun, but what is forgotten is closed.
    assert!(!begin(&mut machine, &pool, &other.0.join("top0"), 0));
    assert!(pool.with(|frontier| frontier.is_waiting()));
    pool.run(&mut machine);
    assert!(begin(&mut machine, &pool, &other.0.join("top0"), 0));
    pool.run(&mut machine);
    assert!(reached(&pool, &other.0.join("top0/sub2")));
}

/// A machine all of whose directories hold files without an end.
struct Endless {
    machine: Machine,
    reads: u32,
}

impl Calls for Endless {
    fn call(&mut self, number: usize, args: [usize; 6]) -> isize {
        if number != nr::GETDENTS64 {
            return self.machine.call(number, args);
        }
        self.reads += 1;
        assert!(self.reads < 100_000, "it is read for ever");
        // struct linux_dirent64: inode, offset, length, type, name.
        let mut entry = [0u8; 24];
        entry[0] = 77;
        entry[16] = 24;
        entry[18] = libc::DT_REG;
        entry[19] = b'x';
        // SAFETY: the reader's buffer, which is longer.
        unsafe { std::ptr::copy_nonoverlapping(entry.as_ptr(), args[1] as *mut u8, entry.len()) };
        entry.len() as isize
    }
}

#[test]
fn a_directory_without_an_end_is_left_to_the_walk() {
    let root = tree("endless", 1, 1, 0);
    let pool = Pool::new();
    let mut endless = Endless { machine: Machine::new(), reads: 0 };
    // From its beginning, and behind an entry that never comes.
    for after in [0, 1 << 40] {
        assert!(begin(&mut endless.machine, &pool, &root.0.join("top0"), after));
        assert!(pool.run(&mut endless) >= 1);
        assert!(endless.machine.open.is_empty());
    }
}

/// A machine whose walks are read at once.
struct Reading {
    machine: Machine,
    pool: Pool,
}

impl Calls for Reading {
    fn call(&mut self, number: usize, args: [usize; 6]) -> isize {
        if number == nr::OPENAT2 {
            // As a scout's own filter lets it through.
            return raw(number, args).inspect_open(&mut self.machine);
        }
        self.machine.call(number, args)
    }
}

trait InspectOpen {
    fn inspect_open(self, machine: &mut Machine) -> isize;
}

impl InspectOpen for isize {
    fn inspect_open(self, machine: &mut Machine) -> isize {
        if let Ok(fd) = usize::try_from(self) {
            machine.open.insert(fd);
        }
        self
    }
}

impl Kernel for Reading {
    fn prepare_write(&mut self, _: usize, _: usize) -> bool {
        unreachable!("a scout touches nothing of the program's")
    }
    fn load(&mut self, _: usize, _: &mut [u8]) -> bool {
        unreachable!()
    }
    fn store(&mut self, _: usize, _: &[u8]) -> bool {
        unreachable!()
    }
    fn protecting(&mut self, _: usize, _: usize, _: usize) -> Protecting {
        unreachable!()
    }
    fn is_shared(&mut self, _: usize, _: usize) -> bool {
        unreachable!()
    }
    fn mapped(&mut self, _: usize, _: usize, _: Option<Mapped>) {}
    fn unmapped(&mut self, _: usize, _: usize) {}
    fn now_ns(&mut self) -> u64 {
        0
    }
    fn wait_consumed(&mut self, _: u64) -> bool {
        unreachable!()
    }
    fn pause(&mut self, _: u64) {}

    fn walk(&mut self, walk: &Walk, readers: u32) -> bool {
        assert!((2..=runahead_emulate::READERS_MAX).contains(&readers));
        let begun = self.pool.with(|frontier| frontier.begin(walk));
        self.pool.run(&mut self.machine);
        begun
    }

    fn reached(&mut self, dev: u64, ino: u64) -> Ahead {
        let known = self.pool.with(|frontier| frontier.reached(dev, ino));
        self.pool.run(&mut self.machine);
        known
    }
}

/// A tree that is all there: it is soon left alone, and nothing of it was saved.
#[test]
fn what_is_in_memory_is_not_read_ahead_for_long() {
    let root = tree("resident", 2, 40, 0);
    let mut order = Vec::new();
    walk(&root.0, &mut order);
    let (mut machine, pool) = (Machine::new(), Pool::new());
    let at = |path: &Path| {
        let stat = fs::metadata(path).unwrap();
        pool.with(|frontier| frontier.reached(stat.dev(), stat.ino()))
    };
    pool.waits.set(false);
    assert!(begin(&mut machine, &pool, &root.0, 0));
    pool.run(&mut machine);
    let read = order.iter().filter(|path| at(path) == Ahead::InMemory).count();
    assert_eq!(read, IN_MEMORY_MAX as usize);
    assert!(pool.frontier.borrow().is_in_memory() && !pool.frontier.borrow().is_waiting());
    // The walk waits again: what comes then is cold.
    pool.waits.set(true);
    assert!(begin(&mut machine, &pool, &root.0, 0));
    pool.run(&mut machine);
    assert_eq!(order.iter().filter(|path| at(path) == Ahead::Waited).count(), 82 - read);
    assert!(!pool.frontier.borrow().is_in_memory());
    // A scout that reads such a tree ahead counts none of it as used.
    let mut scouted = Reading { machine, pool: Pool::new() };
    scouted.pool.waits.set(false);
    let mut scout = Scout::new(0, 0);
    assert!(begin(&mut scouted.machine, &scouted.pool, &root.0, 0));
    scouted.pool.run(&mut scouted.machine);
    let first = order.iter().find(|path| reached(&scouted.pool, path)).unwrap();
    let first = fs::metadata(first).unwrap();
    let directory = Directory { dev: first.dev(), ino: first.ino(), waited_ns: 0 };
    assert_eq!(scout.came_to(&mut scouted, &directory, None), Came::InMemory);
}

/// Walks a tree as `find` (or, with `files`, `du`) does, every directory that
/// was not read ahead waiting: how many those were, and the files that were
/// looked at ahead.
fn scouted(root: &Path, files: bool) -> (usize, usize) {
    let mut reading = Reading { machine: Machine::new(), pool: Pool::new() };
    let mut scout = Scout::new(0, 0);
    let mut order = Vec::new();
    walk(root, &mut order);
    let mut unread = 0;
    for path in &order {
        let stat = fs::metadata(path).unwrap();
        let known = reached(&reading.pool, path);
        let waited_ns = if known { 0 } else { 1_000_000 };
        let directory = Directory { dev: stat.dev(), ino: stat.ino(), waited_ns };
        let mut text = path.to_str().unwrap().as_bytes().to_vec();
        text.push(0);
        let told = (!known).then_some(text.as_mut_slice());
        let came = scout.came_to(&mut reading, &directory, told);
        assert_eq!(came, if known { Came::True } else { Came::Unread });
        unread += usize::from(!known);
        // Only now: the scout is told when the entries have just been read.
        for entry in fs::read_dir(path).unwrap().flatten().filter(|_| files) {
            let _ = entry.metadata();
        }
    }
    let looked = reading.machine.named.iter().filter(|name| name.starts_with("file")).count();
    (unread, looked)
}

#[test]
fn a_scout_leaves_little_to_wait_for() {
    for files in [true, false] {
        let root = tree("scout", 6, 8, 3);
        // What the kernel knows by name is what says whether files are looked
        // at: of new files it knows all.
        let (unread, looked) = scouted(&root.0, files);
        assert!(unread <= 6, "{unread} of 54 directories were waited for");
        assert!(looked > 100, "{looked}");
    }
}

#[test]
fn a_copy_that_walks_and_waits_has_the_next_directories_read() {
    let root = tree("copy", 3, 6, 2);
    // One that lost its processor has not waited.
    for (wait_ns, preempted, walks) in [(0, false, 0), (1_000_000, true, 0), (1_000_000, false, 1)]
    {
        let mut copy = Copy::new();
        copy.machine.name_wait_ns = wait_ns;
        copy.machine.preempted = preempted;
        for sub in 0..3 {
            let fd = copy.open(root.0.join(format!("top0/sub{sub}")), libc::O_DIRECTORY);
            assert!(fd >= 0);
        }
        assert_eq!(copy.machine.walks.len().min(1), walks, "with waits of {wait_ns} ns");
    }
}

#[test]
fn a_copy_that_opens_directories_here_and_there_has_none_read() {
    let root = tree("searches", 6, 2, 1);
    let mut copy = Copy::new();
    copy.machine.name_wait_ns = 1_000_000;
    for top in 0..6 {
        copy.open(root.0.join(format!("top{top}/sub0")), libc::O_DIRECTORY);
        copy.open(root.0.join(format!("top{top}/sub0/file0")), libc::O_RDONLY);
    }
    assert_eq!(copy.machine.walks.len(), 0);
}

#[test]
fn a_list_of_files_in_the_order_of_a_tree_counts_as_a_walk() {
    let root = tree("list", 1, 5, 2);
    let mut copy = Copy::new();
    copy.machine.name_wait_ns = 1_000_000;
    for sub in 0..5 {
        for file in 0..2 {
            copy.open(root.0.join(format!("top0/sub{sub}/file{file}")), libc::O_RDONLY);
        }
    }
    let walk = copy.machine.walks.first().expect("a walk");
    assert!(walk.files);
    assert_eq!(walk.after, fs::metadata(root.0.join("top0/sub1")).unwrap().ino());
}

#[test]
fn directories_are_in_the_log_as_reads_are() {
    let root = tree("log", 1, 2, 2);
    let mut copy = Copy::new();
    let fd = copy.open(root.0.join("top0"), libc::O_DIRECTORY);
    let mut buffer = vec![0u8; 4096];
    let address = copy.machine.own(&mut buffer);
    copy.machine.name_wait_ns = 1_000_000;
    assert!(copy.call(nr::GETDENTS64, &[fd as usize, address, 4096]) > 0);
    copy.machine.name_wait_ns = 0;
    assert_eq!(copy.call(nr::GETDENTS64, &[fd as usize, address, 4096]), 0);
    let ino = fs::metadata(root.0.join("top0")).unwrap().ino();
    let logged: Vec<_> = (0..3).map_while(|n| copy.log.get(n)).collect();
    assert_eq!(logged.len(), 2);
    assert!(logged.iter().all(|entry| entry.offset == ino && entry.fd == fd as i32));
    assert_eq!(logged[0].prefetched_len, 1, "it waited");
    assert_eq!(logged[1].prefetched_len, 0, "its end did not");
}
