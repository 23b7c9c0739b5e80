//! When learning that costs something may run: while its owner is away.
//!
//! The decision is a pure function ([`decide`]) of facts and a clock: when the last main turn ended, when the keyboard
//! was last touched, what the calendar says, what the machine runs on. The facts come from elsewhere: the log, the display
//! ([`KeyboardWatch`]), calendar files ([`Calendar`]), the system ([`on_battery`]). No network: whoever has an address
//! of a calendar is handed in the text behind it. [`Schedule`] holds rules and facts together for those who ask.

mod calendar;
mod config;
mod decision;
mod facts;
mod intervals;
mod keyboard;
mod power;
mod schedule;
mod sleep;
mod state;

pub use self::{
    calendar::{Calendar, CalendarError, MAX_CALENDAR},
    config::{SchedulerConfig, TimeOfDay, TimeOfDayError},
    decision::{Next, Obstacle, Opening, Rules, Window, decide, next_window},
    facts::{Facts, Keyboard},
    intervals::Interval,
    keyboard::{Displays, KeyboardWatch},
    power::{POWER_SUPPLIES, on_battery},
    schedule::Schedule,
    sleep::{SleepHours, local_clock},
    state::{SavedState, StateError},
};
