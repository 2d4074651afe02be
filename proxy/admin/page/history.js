// The history of all links and jobs, as /history gives it, kept up to date by the newest slots in each event.

const columns = ["raw_bytes", "wire_bytes", "delivered_bytes", "sent_bytes", "received_bytes", "down_seconds", "rtt_seconds", "goodput_bytes_per_second"];
const name = (s) => JSON.stringify([s.peer, s.job, s.link]);

export class History {
  constructor(table) {
    this.step = table.step;
    this.span = table.span;
    this.times = table.times ?? [];
    this.series = new Map((table.series ?? []).map((s) => [name(s), s]));
  }

  /** take takes the newest slots of a table with the same step. */
  take(table) {
    table.times.forEach((time, at) => {
      let i = this.times.length - 1;
      while (i >= 0 && this.times[i] > time) i--;
      if (i < 0 || this.times[i] !== time) {
        if (i !== this.times.length - 1) return; // older than slots that are here
        this.times.push(time);
        for (const s of this.series.values()) for (const c of columns) s[c].push(0);
        i++;
      }
      for (const s of table.series) {
        let own = this.series.get(name(s));
        if (!own) {
          own = { peer: s.peer, job: s.job, link: s.link };
          for (const c of columns) own[c] = new Array(this.times.length).fill(0);
          this.series.set(name(s), own);
        }
        for (const c of columns) own[c][i] = s[c][at];
      }
    });
    const first = this.times.length && this.times[this.times.length - 1] - this.span;
    const old = this.times.findIndex((t) => t > first);
    if (old > 0) {
      this.times.splice(0, old);
      for (const s of this.series.values()) for (const c of columns) s[c].splice(0, old);
    }
  }

  /** select lists the series of the links, or of a job, to one peer or all. */
  select(peer, job) {
    return [...this.series.values()].filter((s) => (!peer || s.peer === peer) && (job === null ? s.link : !s.link && s.job === job));
  }

  /** sum adds up a column over series. */
  sum(series, column) {
    return this.times.map((_, i) => series.reduce((sum, s) => sum + s[column][i], 0));
  }
}
