//! Operations on several channels, which are waited for together.

use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use fodo_net::many::{self, ManyGets, ManyPuts};
use fodo_net::{Channel, Error, Request, Value};

use crate::codec::{InputReader, InvalidInput, ReplyTag, ReplyWriter};
use crate::context::{ChannelsOfList, JavaContext};
use crate::error::JavaFailure;
use crate::handle;
use crate::operation::{End, EndedWith, RunningOperation, What, is_of_a_structure, request, write_end};

/// Channels that are used together.
pub struct ListedChannels {
    targets: ChannelsOfList,
    default_timeout: Duration,
}

/// An operation on all channels of a list.
pub struct RunningList {
    targets: ChannelsOfList,
    together: Option<(Together, Vec<usize>)>,
    /// Those of connecting, and of PVs that are structures, each with its index.
    singles: Vec<(usize, RunningOperation)>,
    /// By the index of the PV.
    ends: Vec<Option<End>>,
}

enum Together {
    Gets(ManyGets),
    Puts(ManyPuts),
}

impl ListedChannels {
    /// The input: the handles of the channels.
    pub fn create(context: &JavaContext, input: &mut InputReader<'_>) -> Result<ListedChannels, JavaFailure> {
        let n = input.count(8)?;
        let targets = (0..n).map(|_| handle::channel(input.i64()?)).collect::<Result<Vec<_>, JavaFailure>>()?;
        match targets.is_empty() {
            true => Err(JavaFailure::misuse("", "the list has no PV")),
            false => Ok(ListedChannels { targets: targets.into(), default_timeout: context.default_timeout }),
        }
    }

    pub fn default_timeout(&self) -> Duration {
        self.default_timeout
    }

    /// Closes the channels, which are those of this list only.
    pub fn close(&self) {
        self.targets.iter().for_each(|target| target.close());
    }

    pub fn start(&self, what: What, input: &mut InputReader<'_>) -> Result<RunningList, JavaFailure> {
        let targets = self.targets.clone();
        let mut ends = Vec::new();
        ends.resize_with(targets.len(), || None);
        let mut list = RunningList { targets, together: None, singles: Vec::new(), ends };
        match what {
            What::Connect => {
                list.singles = self.targets.iter().map(RunningOperation::connect).enumerate().collect();
            }
            What::Get | What::GetAny => list.start_gets(request(input)?),
            What::Put => {
                let values =
                    (0..self.targets.len()).map(|_| input.value()).collect::<Result<Vec<Value>, InvalidInput>>()?;
                let channels = self.targets.iter().map(|target| target.channel.clone());
                let puts = many::start_put(channels.zip(values));
                list.together = Some((Together::Puts(puts), (0..self.targets.len()).collect()));
            }
            _ => return Err(JavaFailure::misuse("", "a list can connect, get and put")),
        }
        Ok(list)
    }
}

impl RunningList {
    fn start_gets(&mut self, request: Request) {
        let is_structure = |index: &usize| self.targets[*index].is_structure.load(Ordering::Relaxed);
        let (structures, values): (Vec<usize>, Vec<usize>) = (0..self.targets.len()).partition(is_structure);
        let channels: Vec<Channel> = values.iter().map(|&index| self.targets[index].channel.clone()).collect();
        self.together = (!values.is_empty()).then(|| (Together::Gets(many::start_get(channels, request)), values));
        structures.into_iter().for_each(|index| self.start_structure(index));
    }

    fn start_structure(&mut self, index: usize) {
        self.singles.push((index, RunningOperation::of_structure(&self.targets[index])));
    }

    /// Takes the results of those that were started together. `repeats`: a PV that turns out to be a structure is read as such.
    fn end_together(&mut self, waited: Duration, repeats: bool) {
        match self.together.take() {
            Some((Together::Gets(gets), indices)) => {
                for (index, end) in indices.into_iter().zip(gets.finish(waited)) {
                    match end {
                        Err(error) if repeats && is_of_a_structure(&error) => {
                            self.targets[index].is_structure.store(true, Ordering::Relaxed);
                            self.start_structure(index);
                        }
                        end => self.ends[index] = Some(end.map(EndedWith::Reading)),
                    }
                }
            }
            Some((Together::Puts(puts), indices)) => {
                for (index, end) in indices.into_iter().zip(puts.finish(waited)) {
                    self.ends[index] = Some(end.map(|()| EndedWith::Nothing));
                }
            }
            None => {}
        }
    }

    pub fn is_closed(&self) -> bool {
        // All channels are closed together.
        self.targets.last().is_some_and(|target| target.is_closed())
    }

    /// The failure of a list that has not ended although it was closed.
    pub fn closed(&self) -> Option<JavaFailure> {
        self.is_closed().then(|| JavaFailure::closed("", "the list of channels is closed"))
    }

    /// Waits until all have ended, for at most `pause`; returns whether they have.
    pub fn wait_at_most(&mut self, pause: Duration) -> bool {
        let deadline = Instant::now().checked_add(pause);
        let left = || deadline.map_or(pause, |deadline| deadline.saturating_duration_since(Instant::now()));
        let have_ended = match &mut self.together {
            Some((Together::Gets(gets), _)) => gets.wait_at_most(left()),
            Some((Together::Puts(puts), _)) => puts.wait_at_most(left()),
            None => true,
        };
        if !have_ended {
            return false;
        }
        self.end_together(Duration::ZERO, true);
        while let Some((index, operation)) = self.singles.last_mut() {
            let Some(end) = operation.wait_at_most(left()) else { return false };
            self.ends[*index] = Some(end);
            self.singles.pop();
        }
        true
    }

    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let end = match &mut self.together {
            Some((Together::Gets(gets), _)) => gets.poll_end(cx),
            Some((Together::Puts(puts), _)) => puts.poll_end(cx),
            None => Poll::Ready(()),
        };
        if end.is_pending() {
            return Poll::Pending;
        }
        self.end_together(Duration::ZERO, true);
        let ends = &mut self.ends;
        self.singles.retain_mut(|(index, operation)| match operation.poll(cx) {
            Poll::Ready(end) => {
                ends[*index] = Some(end);
                false
            }
            Poll::Pending => true,
        });
        if self.singles.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Ends the wait after this time, and writes a result for each PV.
    pub fn finish(mut self, waited: Duration, out: &mut ReplyWriter) {
        self.end_together(waited, false);
        for (index, operation) in std::mem::take(&mut self.singles) {
            self.ends[index] = Some(operation.finish(waited).1);
        }
        out.reply(ReplyTag::List);
        out.u32(self.ends.len() as u32);
        for (target, end) in self.targets.iter().zip(&self.ends) {
            out.sized(|out| match end {
                Some(end) => write_end(out, target, end),
                None => {
                    let not_found = fodo_net::ErrorKind::NotFound { protocol: target.protocol, after: waited };
                    out.failure(&JavaFailure::from(Error::new(target.channel.name(), not_found)));
                }
            });
        }
    }
}
