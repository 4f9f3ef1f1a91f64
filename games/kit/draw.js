// Kit.draw: sprites, stickers, shadows and shapes.
Kit.draw = (function () {
  "use strict";
  var color = Kit.color;

  // sheet makes an off-screen canvas of w by h game units and paints it once;
  // most limits how sharp it is, for what is very large.
  function sheet(w, h, paint, most) {
    var k = Math.min(Kit.view.scale || 1, most || 2.5), c = document.createElement("canvas");
    c.width = Math.max(1, Math.ceil(w * k));
    c.height = Math.max(1, Math.ceil(h * k));
    var ctx = c.getContext("2d");
    ctx.scale(k, k);
    paint(ctx);
    c.unitW = w;
    c.unitH = h;
    c.unitK = k;
    return c;
  }

  // lay puts a sheet with its top left corner at x, y, on whole pixels where it
  // can: for large sheets that is several times quicker than drawImage.
  function lay(ctx, image, x, y) {
    var m = ctx.getTransform();
    if (Math.abs(image.unitK - m.a) > 0.001 || m.b || m.c) {
      ctx.drawImage(image, x, y, image.unitW, image.unitH);
      return;
    }
    ctx.setTransform(1, 0, 0, 1, Math.round(m.a * x + m.e), Math.round(m.d * y + m.f));
    ctx.drawImage(image, 0, 0);
    ctx.setTransform(m);
  }

  // sticker cuts a picture out with a rim of one colour around it, so that it
  // stands out on every background. size is that of the picture alone.
  function sticker(picture, size, rim, width) {
    var r = width === undefined ? Math.max(2, size * 0.045) : width, full = size + r * 4;
    var shape = sheet(full, full, function (ctx) {
      ctx.drawImage(picture, r * 2, r * 2, size, size);
      ctx.globalCompositeOperation = "source-in";
      ctx.fillStyle = rim;
      ctx.fillRect(0, 0, full, full);
    });
    return sheet(full, full, function (ctx) {
      for (var i = 0; i < 16; i++) {
        ctx.drawImage(shape, Math.cos(i * Math.PI / 8) * r, Math.sin(i * Math.PI / 8) * r, full, full);
      }
      ctx.drawImage(picture, r * 2, r * 2, size, size);
    });
  }

  // tinted is a picture washed with a colour, for things that are far away.
  function tinted(picture, size, wash, amount) {
    return sheet(size, size, function (ctx) {
      ctx.drawImage(picture, 0, 0, size, size);
      ctx.globalCompositeOperation = "source-atop";
      ctx.globalAlpha = amount;
      ctx.fillStyle = wash;
      ctx.fillRect(0, 0, size, size);
    });
  }

  // sprite draws a sheet (or a picture, with look.size) centred on x, y.
  // look: angle (radians), flip (face left), sx, sy (squash and stretch), alpha.
  function sprite(ctx, image, x, y, look) {
    var o = look || {}, w = image.unitW || o.size, h = image.unitH || o.size;
    ctx.save();
    ctx.translate(x, y);
    if (o.angle) ctx.rotate(o.angle);
    ctx.scale((o.flip ? -1 : 1) * (o.sx || 1), o.sy || 1);
    if (o.alpha !== undefined) ctx.globalAlpha = o.alpha;
    ctx.drawImage(image, -w / 2, -h / 2, w, h);
    ctx.restore();
  }

  // shadow is a soft dark spot on the ground.
  var spot = null;
  function shadow(ctx, x, y, width, strength) {
    if (!spot) {
      spot = sheet(64, 64, function (c) {
        var g = c.createRadialGradient(32, 32, 2, 32, 32, 32);
        g.addColorStop(0, "rgba(8,12,40,0.75)");
        g.addColorStop(1, "rgba(8,12,40,0)");
        c.fillStyle = g;
        c.fillRect(0, 0, 64, 64);
      });
    }
    ctx.globalAlpha = strength === undefined ? 0.5 : strength;
    ctx.drawImage(spot, x - width / 2, y - width * 0.16, width, width * 0.32);
    ctx.globalAlpha = 1;
  }

  // glow makes a sheet of light, to be drawn behind something precious.
  function glow(size, tone) {
    return sheet(size, size, function (c) {
      var g = c.createRadialGradient(size / 2, size / 2, 0, size / 2, size / 2, size / 2);
      g.addColorStop(0, color.alpha(tone, 0.75));
      g.addColorStop(0.4, color.alpha(tone, 0.3));
      g.addColorStop(1, color.alpha(tone, 0));
      c.fillStyle = g;
      c.fillRect(0, 0, size, size);
    });
  }

  // box is a rounded rectangle: path only.
  function box(ctx, x, y, w, h, r) {
    ctx.beginPath();
    ctx.moveTo(x + r, y);
    ctx.arcTo(x + w, y, x + w, y + h, r);
    ctx.arcTo(x + w, y + h, x, y + h, r);
    ctx.arcTo(x, y + h, x, y, r);
    ctx.arcTo(x, y, x + w, y, r);
    ctx.closePath();
  }

  // fade is a gradient from top to bottom; stops are colours, evenly spaced.
  function fade(ctx, top, bottom, stops) {
    var g = ctx.createLinearGradient(0, top, 0, bottom);
    stops.forEach(function (c, i) { g.addColorStop(i / Math.max(1, stops.length - 1), c); });
    return g;
  }

  return { sheet: sheet, lay: lay, sticker: sticker, tinted: tinted, sprite: sprite, shadow: shadow, glow: glow, box: box, fade: fade };
})();
