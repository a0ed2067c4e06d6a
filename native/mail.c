#include "mail.h"

#include "answer.h"
#include "stream.h"

static void deliver(vm* v, config* through, const mail* m) {
  root* r = vm_root(v, m->root);
  if (!r || v->failed) return;
  v->through = through;
  if (m->callout == 0) {
    vm_tick(v, r);
    return;
  }
  v->root = r;
  v->answer = m->answer;
  v->works = true;
  RUN(v, Z_weirZ_proxy_on_http_call_response(&v->instance, r->id, m->callout, answer_headers(m->answer),
                                             answer_body(m->answer).size, 0));
  v->answer = NULL;
}

void mail_post(vm* v, config* through, uint32_t root, uint32_t callout, answer* a) {
  mail m = {.root = root, .callout = callout, .answer = a};
  pthread_mutex_lock(&v->lock);
  if (v->paused && !v->failed) {
    *v->last_mail = malloc(sizeof m);
    **v->last_mail = m;
    v->last_mail = &(*v->last_mail)->next;
    stream_wake(v->paused);
    pthread_mutex_unlock(&v->lock);
    return;
  }
  deliver(v, through, &m);
  pthread_mutex_unlock(&v->lock);
  answer_free(a);
}

void mail_read(vm* v, config* through) {
  while (v->mail) {
    mail* m = v->mail;
    v->mail = m->next;
    if (!v->mail) v->last_mail = &v->mail;
    deliver(v, through, m);
    answer_free(m->answer);
    free(m);
  }
}

void mail_drop(vm* v) {
  while (v->mail) {
    mail* m = v->mail;
    v->mail = m->next;
    answer_free(m->answer);
    free(m);
  }
  v->last_mail = &v->mail;
}
