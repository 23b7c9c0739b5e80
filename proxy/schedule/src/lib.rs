//! Decides when costly learning may run: while the owner is away.
//!
//! The decision is a pure function ([`decide`]) of a clock and facts: when the last main turn ended, when the keyboard
//! was last touched, the calendar, and the power supply. The facts come from elsewhere: the log, the display
//! ([`KeyboardWatch`]), calendar files ([`Calendar`]), the system ([`on_battery`]). This crate uses no network. For a
//! calendar's address, the caller passes the text. [`Schedule`] holds rules and facts together.

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
    config::{GoogleCalendarConfig, SchedulerConfig, TimeOfDay, TimeOfDayError},
    decision::{Next, Obstacle, Opening, Rules, Window, decide, next_window},
    facts::{Facts, Keyboard},
    intervals::Interval,
    keyboard::{Displays, KeyboardWatch},
    power::{POWER_SUPPLIES, on_battery},
    schedule::Schedule,
    sleep::{SleepHours, local_clock},
    state::{SavedState, StateError},
};
