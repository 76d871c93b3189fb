//! Reading: counters, listings, records and a caller's rows.

use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, Stream};

use super::kv_range::{self, KvPage, KvRange};
use super::source::Source;
use crate::engine::Shared;
use crate::error::Result;
use crate::inbox::InboxRecord;
use crate::lifecycle::job::Job;
use crate::liveness::WriterHeartbeat;
use crate::name::QueueName;
use crate::record::{JobAttempt, JobPage, JobRecord, JobStatus, QuarantinePage, QueueStats};
use crate::store::objects::{Objects, Unreadable};
use crate::store::reader::Reader;
use crate::store::record;
use crate::store::scan::Row;
use crate::store::{beat, find, inbox, keys, quarantine, shape};

/// Reads of a store. Each call sees one moment; pages of a listing do not share theirs.
///
/// That of a [`Queue`](crate::Queue) shows what is in the store's memory, which most often is durable; a call whose
/// answer must survive a crash is one of the durable calls of the queue. That of a
/// [`QueueReader`](crate::QueueReader) shows what was durable when the reader last caught up. The owner stores a claim
/// only when it lasts, so there a job that was claimed just now shows as pending.
#[derive(Clone)]
pub struct QueueView {
    source: Source,
}

impl QueueView {
    pub(crate) fn live(shared: Arc<Shared>) -> Self {
        Self { source: Source::Live(shared) }
    }

    pub(crate) fn lagging(reader: Arc<Reader>, objects: Objects) -> Self {
        Self { source: Source::Reader(reader, objects) }
    }

    /// Returns how many jobs of a queue are in each state; zeros for a queue that never had one. One read.
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed); [`Error::Storage`](crate::Error::Storage).
    pub async fn stats(&self, queue: &str) -> Result<QueueStats> {
        let (counters, paused) = self.source.counters(QueueName::new(queue)?).await?;
        let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        Ok(QueueStats {
            queue: queue.to_owned(),
            pending: count(counters.pending),
            claimed: count(counters.claimed),
            done: count(counters.done),
            dead: count(counters.dead),
            scheduled: count(counters.scheduled),
            paused,
        })
    }

    /// Returns every queue that ever had a job, by length and name.
    ///
    /// # Errors
    /// As [`stats`](Self::stats).
    pub async fn list_queues(&self) -> Result<Vec<String>> {
        let at = self.source.moment()?;
        let mut scan = at.scan_prefix(&[keys::COUNTERS]).await?;
        let mut queues = Vec::new();
        while let Some(row) = scan.next().await? {
            queues.extend(keys::queue_of(&row.key).map(str::to_owned));
        }
        Ok(queues)
    }

    /// Returns a job with its payload; `None` when there is none of this id.
    ///
    /// # Errors
    /// As [`stats`](Self::stats); [`Error::Deserialization`](crate::Error::Deserialization) for a damaged record;
    /// [`Error::PayloadMissing`](crate::Error::PayloadMissing) when the payload's object is missing or damaged, [`Error::PayloadStore`](crate::Error::PayloadStore) when it cannot
    /// be read now: [`job_record`](Self::job_record) shows the rest.
    pub async fn get_job(&self, id: &str) -> Result<Option<JobRecord>> {
        let mut missed = None;
        while let Some(job) = self.source.job(id).await? {
            let mut record = shape::job_record(&job)?;
            let Some(object) = job.body.payload.object() else {
                return Ok(Some(record));
            };
            match self.source.objects().get(object).await {
                Ok(payload) => {
                    record.payload = payload.into();
                    return Ok(Some(record));
                }
                // It may have ended since it was found, its object with it: then the second look does not find it.
                Err(Unreadable::Lost(_)) if missed != Some(object.name) => {
                    missed = Some(object.name)
                }
                Err(error) => return Err(error.into_error(id)),
            }
        }
        Ok(None)
    }

    /// Returns a job as it is stored; `None` when there is none of this id. Without its payload when that is in an object
    /// of its own: [`JobRecord::payload_ref`] names it.
    ///
    /// # Errors
    /// As [`stats`](Self::stats); [`Error::Deserialization`](crate::Error::Deserialization) for a damaged record.
    pub async fn job_record(&self, id: &str) -> Result<Option<JobRecord>> {
        self.source.job(id).await?.map(|job| shape::job_record(&job)).transpose()
    }

    /// Returns how a job's attempts ended, oldest first: those that were tried again, and the last one of a job whose
    /// record is kept. The latest 100 are kept, as long as the job's record is; a job that is gone, or that has had no
    /// attempt, has none.
    ///
    /// # Errors
    /// As [`stats`](Self::stats).
    pub async fn attempt_history(&self, id: &str) -> Result<Vec<JobAttempt>> {
        let entries = self.source.history(id).await?;
        Ok(entries.into_iter().map(shape::attempt).collect())
    }

    /// Returns one page of a queue's jobs in a state: pending in claim order, scheduled by time, done in order of
    /// completion, claimed and dead by id. `cursor` is the last page's `next_cursor`; a foreign one, or a `limit` of
    /// zero, gives an empty page. Payloads that have a row or an object of their own are left out. A record that cannot be decoded
    /// is left out and logged.
    ///
    /// # Errors
    /// As [`stats`](Self::stats).
    pub async fn list_jobs(
        &self,
        queue: &str,
        status: JobStatus,
        cursor: Option<&[u8]>,
        limit: usize,
    ) -> Result<JobPage> {
        let queue = QueueName::new(queue)?;
        if limit == 0 {
            return Ok(JobPage::default());
        }
        if status == JobStatus::Claimed {
            return claimed_page(self.source.claimed_in(&queue).await?, cursor, limit);
        }
        let prefix = match status {
            JobStatus::Scheduled => vec![keys::SCHEDULED],
            JobStatus::Done => keys::in_queue(keys::DONE, &queue),
            JobStatus::Dead => keys::in_queue(keys::DEAD, &queue),
            _ => keys::in_queue(keys::READY, &queue),
        };
        let start = match cursor {
            Some(cursor) if !cursor.starts_with(&prefix) => return Ok(JobPage::default()),
            Some(cursor) => Bound::Excluded(cursor.to_vec()),
            None => Bound::Included(prefix.clone()),
        };
        let end = keys::after_prefix(&prefix);
        let (held, mut scan) = match status {
            JobStatus::Pending => self.source.not_claimed(&queue, start, end).await?,
            _ => (HashSet::new(), self.source.moment()?.scan(start, end).await?),
        };
        let mut page = JobPage::default();
        let mut last = Bytes::new();
        while let Some(Row { key, value, .. }) = scan.next().await? {
            if page.jobs.len() == limit {
                page.next_cursor = Some(last.to_vec());
                break;
            }
            match record::decode_job(value) {
                Ok(job) if *job.queue() == queue && !held.contains(&key) => {
                    page.jobs.push(shape::job_record(&job)?);
                    last = key;
                }
                Ok(_) => {}
                Err(e) => {
                    tracing::error!(error = %find::undecodable(&key, e), "a job is not listed")
                }
            }
        }
        Ok(page)
    }

    /// Returns up to `limit` of the rows that could not be decoded and were put aside, all queues together; `cursor` is
    /// the last page's `next_cursor`.
    ///
    /// # Errors
    /// As [`stats`](Self::stats).
    pub async fn quarantine(&self, cursor: Option<&[u8]>, limit: usize) -> Result<QuarantinePage> {
        let (rows, more) = quarantine::list(&self.source.moment()?, cursor, limit).await?;
        let rows: Vec<_> = rows.into_iter().map(shape::quarantined).collect();
        let next_cursor = rows.last().filter(|_| more).map(|row| row.key.clone());
        Ok(QuarantinePage { rows, next_cursor })
    }

    /// Streams a queue's jobs in a state, reading `page_size` at a time; as [`list_jobs`](Self::list_jobs).
    pub fn jobs<'a>(
        &'a self,
        queue: &'a str,
        status: JobStatus,
        page_size: usize,
    ) -> impl Stream<Item = Result<JobRecord>> + Send + 'a {
        pages(move |cursor: Option<Vec<u8>>| async move {
            let page = self.list_jobs(queue, status, cursor.as_deref(), page_size.max(1)).await?;
            Ok((page.jobs, page.next_cursor))
        })
    }

    /// Returns up to `limit` dead jobs of a queue by id, after `after_id`.
    ///
    /// # Errors
    /// As [`stats`](Self::stats).
    pub async fn dead_jobs(
        &self,
        queue: &str,
        after_id: Option<&str>,
        limit: usize,
    ) -> Result<Vec<JobRecord>> {
        let cursor = after_id.map(|id| keys::dead(queue, id));
        Ok(self.list_jobs(queue, JobStatus::Dead, cursor.as_deref(), limit).await?.jobs)
    }

    /// Returns the value of a caller's row; `None` when it is absent.
    ///
    /// # Errors
    /// As [`stats`](Self::stats).
    pub async fn kv_get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.source.get(&keys::kv(key)).await
    }

    /// Returns the last beat of the store's owner, durable or on its way there; `None` when no owner of this store
    /// ever beat. One read.
    ///
    /// # Errors
    /// As [`stats`](Self::stats).
    pub async fn writer_heartbeat(&self) -> Result<Option<WriterHeartbeat>> {
        let value = self.source.get(keys::HEARTBEAT).await?;
        let beat = value.map(beat::decode).transpose();
        beat.map_err(|e| find::undecodable(keys::HEARTBEAT, e))
    }

    /// Returns what became of an inbox entry of a queue; `None` when none of this id came, or it was longer ago than
    /// [`InboxOptions::record_retention`](crate::InboxOptions::record_retention). One read.
    ///
    /// # Errors
    /// As [`stats`](Self::stats); [`Error::Deserialization`](crate::Error::Deserialization) for a damaged record.
    pub async fn inbox_record(&self, queue: &str, id: &str) -> Result<Option<InboxRecord>> {
        let key = keys::entry(&QueueName::new(queue)?, id);
        let kept = self.source.get(&key).await?.map(inbox::decode).transpose();
        Ok(kept.map_err(|e| find::undecodable(&key, e))?.map(|kept| kept.record))
    }

    /// Returns up to `limit` of a caller's rows whose keys start with `prefix` and lie in `range` (of full keys), in
    /// key order. An empty or reversed range gives an empty page.
    ///
    /// # Errors
    /// As [`stats`](Self::stats).
    pub async fn kv_scan(
        &self,
        prefix: &[u8],
        range: impl KvRange,
        limit: usize,
    ) -> Result<KvPage> {
        self.scan_rows(kv_range::stored(prefix, &range), limit, false).await
    }

    /// As [`kv_scan`](Self::kv_scan), the last key first: go on with an end of `Bound::Excluded(last_key)`.
    ///
    /// # Errors
    /// As [`stats`](Self::stats).
    pub async fn kv_scan_back(
        &self,
        prefix: &[u8],
        range: impl KvRange,
        limit: usize,
    ) -> Result<KvPage> {
        self.scan_rows(kv_range::stored(prefix, &range), limit, true).await
    }

    async fn scan_rows(
        &self,
        range: Option<(Bound<Vec<u8>>, Vec<u8>)>,
        limit: usize,
        back: bool,
    ) -> Result<KvPage> {
        let mut page = KvPage::default();
        let (Some((start, end)), true) = (range, limit > 0) else {
            return Ok(page);
        };
        let at = self.source.moment()?;
        let mut scan = match back {
            true => at.scan_back(start, Some(end)).await?,
            false => at.scan(start, Some(end)).await?,
        };
        while let Some(row) = scan.next().await? {
            if page.entries.len() == limit {
                page.more = true;
                break;
            }
            page.entries.push((row.key.get(1..).unwrap_or_default().to_vec(), row.value));
        }
        Ok(page)
    }

    /// Streams a caller's rows, reading `page_size` at a time; as [`kv_scan`](Self::kv_scan).
    pub fn kv_entries<'a>(
        &'a self,
        prefix: &'a [u8],
        range: impl KvRange,
        page_size: usize,
    ) -> impl Stream<Item = Result<(Vec<u8>, Bytes)>> + Send + 'a {
        // Boxed, so that the stream does not carry the type of a range it no longer holds.
        let range = kv_range::stored(prefix, &range);
        self.entries(range, page_size)
    }

    fn entries(
        &self,
        range: Option<(Bound<Vec<u8>>, Vec<u8>)>,
        page_size: usize,
    ) -> BoxStream<'_, Result<(Vec<u8>, Bytes)>> {
        Box::pin(pages(move |last: Option<Vec<u8>>| {
            let range = range.clone().map(|(start, end)| match last {
                Some(last) => (Bound::Excluded(last), end),
                None => (start, end),
            });
            async move {
                let page = self.scan_rows(range, page_size.max(1), false).await?;
                let last = page.entries.last().filter(|_| page.more);
                let next = last.map(|(key, _)| keys::kv(key).to_vec());
                Ok((page.entries, next))
            }
        }))
    }
}

impl std::fmt::Debug for QueueView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueueView").finish_non_exhaustive()
    }
}

/// One page of the claimed jobs of a queue, by id. They are as few as there are workers.
fn claimed_page(mut jobs: Vec<Arc<Job>>, cursor: Option<&[u8]>, limit: usize) -> Result<JobPage> {
    jobs.sort_by(|a, b| a.id().cmp(b.id()));
    let after = |job: &&Arc<Job>| cursor.is_none_or(|cursor| job.id().as_bytes() > cursor);
    let mut rest = jobs.iter().filter(after);
    let page: Vec<_> = rest.by_ref().take(limit).collect();
    let next_cursor = match (rest.next(), page.last()) {
        (Some(_), Some(last)) => Some(last.id().as_bytes().to_vec()),
        _ => None,
    };
    let jobs = page.into_iter().map(|job| shape::listed(job)).collect::<Result<_>>()?;
    Ok(JobPage { jobs, next_cursor })
}

/// A stream of the items of pages, each page read when the one before is used up.
fn pages<T: Send, C: Send, F>(
    read: impl Fn(Option<C>) -> F + Send,
) -> impl Stream<Item = Result<T>> + Send
where
    F: Future<Output = Result<(Vec<T>, Option<C>)>> + Send,
{
    let start = (Vec::new().into_iter(), Some(None), read);
    stream::try_unfold(start, |(mut items, mut next, read)| async move {
        loop {
            if let Some(item) = items.next() {
                return Ok(Some((item, (items, next, read))));
            }
            let Some(cursor) = next else { return Ok(None) };
            let (page, after): (Vec<T>, Option<C>) = read(cursor).await?;
            items = page.into_iter();
            next = after.map(Some);
        }
    })
}
