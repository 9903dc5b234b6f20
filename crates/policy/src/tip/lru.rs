//! The LRU estimator: a segmented, ghost-extended queue (sections 4.3.1 and 5.2.6).

use alloc::vec::Vec;

use super::buffers::{BufId, Buffers, LruLinks, NONE};
use super::estimates::{Parameters, Value};
use super::rates::MovingAverage;

/// Most segments between the first and the overflow one. A release moves one header from each
/// full segment to the next, so that in a cache of gigabytes segments of the thesis's length
/// would be thousands of steps. Its own cache has 13.
const SEGMENTS_MAX: u32 = 256;

/// One segment of the queue (`tipLruSegs`).
#[derive(Debug)]
struct Segment {
    target: u32,
    count: u32,
    /// Its least recently used header.
    oldest: BufId,
    hits: MovingAverage,
    /// max over j ≥ i of the marginal costs (Eq 4.22), refreshed each period.
    cost: Value,
}

/// An LRU queue with its profile of hits. Everything newer than `head` has a buffer and is
/// tracked; everything older is a ghost that only scores hits.
#[derive(Debug)]
pub(super) struct LruEstimator {
    queue: u8,
    segments: Vec<Segment>,
    newest: BufId,
    /// `tipLruHead`: the least recently used tracked header.
    head: BufId,
    length: u32,
}

impl LruEstimator {
    /// A queue for a cache of `buffers`, plus an overflow segment. Segments are longer than
    /// `segment` where there would be more than [`SEGMENTS_MAX`].
    pub(super) fn new(queue: u8, buffers: u32, active: u32, segment: u32) -> Self {
        let mut targets = alloc::vec![active.clamp(1, buffers)];
        let mut left = buffers - targets[0];
        let segment = segment.max(left.div_ceil(SEGMENTS_MAX)).max(1);
        while left > 0 {
            let target = left.min(segment);
            targets.push(target);
            left -= target;
        }
        targets.push(u32::MAX);
        let empty = |target| Segment {
            target,
            count: 0,
            oldest: NONE,
            hits: MovingAverage::default(),
            cost: 0,
        };
        let segments = targets.into_iter().map(empty).collect();
        Self { queue, segments, newest: NONE, head: NONE, length: 0 }
    }

    /// Counts an unhinted access that found its block in this queue, ghost or not.
    pub(super) fn count_hit(&mut self, links: LruLinks) {
        self.segments[usize::from(links.segment)].hits.count();
    }

    /// Ends a period: new averages, and each segment's cost from the last to the first.
    pub(super) fn end_period(&mut self, parameters: &Parameters) {
        let mut highest = 0;
        let overflow = self.segments.len() - 1;
        for (i, segment) in self.segments.iter_mut().enumerate().rev() {
            segment.hits.end_period();
            if i < overflow {
                highest =
                    parameters.cost_segment(segment.hits.average(), segment.target).max(highest);
            }
            segment.cost = highest;
        }
    }

    /// The cost of the least valuable tracked buffer; `None` when it tracks none. Already
    /// normalised: the division by A and the multiplication by r_d cancel (section 5.3.2).
    pub(super) fn cost(&self, buffers: &Buffers) -> Option<Value> {
        (self.head != NONE).then(|| self.value_of(buffers, self.head))
    }

    /// What this estimator says a header in its queue is worth.
    pub(super) fn value_of(&self, buffers: &Buffers, id: BufId) -> Value {
        buffers.get(id).lru.map_or(0, |links| self.segments[usize::from(links.segment)].cost)
    }

    /// estPick: names the least valuable tracked block and stops tracking it. The header
    /// stays in its place as a ghost.
    pub(super) fn pick(&mut self, buffers: &mut Buffers) -> Option<BufId> {
        let id = self.head;
        if id == NONE {
            return None;
        }
        let links = buffers.get_mut(id).lru.as_mut().expect("the head is in the queue");
        links.ghost = true;
        self.head = links.newer;
        Some(id)
    }

    /// Releases a block to the recent end. Buffers overflow from segment to segment until an
    /// under-full one takes the last of them. What falls off the end without data is
    /// dropped. Post-hint blocks that overflow from the first, active segment go to `post`,
    /// if there is such a queue (section 7.4.3).
    pub(super) fn release_to_tail(
        &mut self,
        buffers: &mut Buffers,
        id: BufId,
        post: Option<&mut Self>,
    ) {
        debug_assert!(buffers.get(id).lru.is_none());
        let older = self.newest;
        buffers.get_mut(id).lru =
            Some(LruLinks { queue: self.queue, segment: 0, ghost: false, newer: NONE, older });
        if older != NONE {
            links_mut(buffers, older).newer = id;
        }
        self.newest = id;
        if self.head == NONE {
            self.head = id;
        }
        self.length += 1;
        self.segments[0].count += 1;
        if self.segments[0].oldest == NONE {
            self.segments[0].oldest = id;
        }
        match post {
            Some(post) if self.first_overflows_to_post(buffers) => {
                let moved = self.segments[0].oldest;
                let ghost = links_mut(buffers, moved).ghost;
                self.remove(buffers, moved);
                if ghost {
                    buffers.drop_if_useless(moved);
                } else {
                    post.release_to_tail(buffers, moved, None);
                }
            }
            _ => self.overflow(buffers),
        }
        self.drop_ghosts_past_the_end(buffers);
    }

    fn first_overflows_to_post(&self, buffers: &Buffers) -> bool {
        let first = &self.segments[0];
        first.count > first.target && buffers.get(first.oldest).post_hint
    }

    fn overflow(&mut self, buffers: &mut Buffers) {
        for i in 0..self.segments.len() - 1 {
            if self.segments[i].count <= self.segments[i].target {
                return;
            }
            let moved = self.segments[i].oldest;
            let links = links_mut(buffers, moved);
            links.segment = (i + 1) as u16;
            self.segments[i].oldest = links.newer;
            self.segments[i].count -= 1;
            let next = &mut self.segments[i + 1];
            next.count += 1;
            if next.oldest == NONE {
                next.oldest = moved;
            }
        }
    }

    /// The queue with its ghosts is no longer than the cache (section 4.3.1): the overflow
    /// segment keeps only blocks that it still tracks.
    fn drop_ghosts_past_the_end(&mut self, buffers: &mut Buffers) {
        let overflow = self.segments.len() - 1;
        while self.segments[overflow].count > 0 {
            let oldest = self.segments[overflow].oldest;
            if !links_mut(buffers, oldest).ghost {
                return;
            }
            self.remove(buffers, oldest);
            buffers.drop_if_useless(oldest);
        }
    }

    /// Takes a header out of the queue. Others are not shifted back (section 4.3.1).
    pub(super) fn remove(&mut self, buffers: &mut Buffers, id: BufId) {
        let links = buffers.get_mut(id).lru.take().expect("only queued headers are removed");
        debug_assert_eq!(links.queue, self.queue);
        if links.newer == NONE {
            self.newest = links.older;
        } else {
            links_mut(buffers, links.newer).older = links.older;
        }
        if links.older != NONE {
            links_mut(buffers, links.older).newer = links.newer;
        }
        if self.head == id {
            self.head = links.newer;
        }
        let segment = usize::from(links.segment);
        self.segments[segment].count -= 1;
        if self.segments[segment].oldest == id {
            let same = links.newer != NONE
                && usize::from(links_mut(buffers, links.newer).segment) == segment;
            self.segments[segment].oldest = if same { links.newer } else { NONE };
        }
        self.length -= 1;
    }

    /// Panics if the queue's links, tags and counts disagree.
    pub(super) fn check(&self, buffers: &Buffers) {
        let (mut id, mut last_segment, mut seen) = (self.newest, 0, 0);
        let mut past_head = self.head == NONE;
        let mut counts = alloc::vec![0; self.segments.len()];
        while id != NONE {
            let links = buffers.get(id).lru.expect("linked headers are queued");
            assert_eq!(links.queue, self.queue);
            assert!(links.segment >= last_segment, "tags grow towards the old end");
            assert_eq!(links.ghost, past_head, "ghosts are exactly what is older than the head");
            past_head |= id == self.head;
            last_segment = links.segment;
            counts[usize::from(links.segment)] += 1;
            seen += 1;
            id = links.older;
        }
        assert_eq!(seen, self.length);
        for (segment, count) in self.segments.iter().zip(counts) {
            assert_eq!(segment.count, count);
            assert!(segment.target == u32::MAX || count <= segment.target);
        }
    }
}

fn links_mut(buffers: &mut Buffers, id: BufId) -> &mut LruLinks {
    buffers.get_mut(id).lru.as_mut().expect("linked headers are queued")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_cache_has_no_more_segments_than_a_release_may_pass() {
        for (buffers, segments) in [(1536, 15), (1 << 14, 164), (1 << 20, 258), (u32::MAX, 258)] {
            let queue = LruEstimator::new(0, buffers, 236, 100);
            assert_eq!(queue.segments.len(), segments, "{buffers} buffers");
            let (_overflow, others) = queue.segments.split_last().unwrap();
            let total: u64 = others.iter().map(|segment| u64::from(segment.target)).sum();
            assert_eq!(total, u64::from(buffers));
        }
    }
}
