// The theme that the user has chosen holds before anything is drawn.
"use strict";
try {
  const chosen = localStorage.getItem("gradproxy-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* a browser without storage: the theme of the system holds */ }
