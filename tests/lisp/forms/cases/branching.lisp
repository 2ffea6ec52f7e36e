; if and what is said with it
(if true 1 2) => 1
(if nil 1 2) => 2
(if false 1) => nil
(if 0 :yes :no) => :yes
(if (= 1 1.0) :yes :no) => :yes
(if-not true 1 2) => 2
(if-not nil 1 2) => 1
(if-not 1 2) => nil
(when true 1 2) => 2
(when nil 1) => nil
(when (< 1 2) :a) => :a
(when-not nil 1 2) => 2
(when-not 1 2) => nil
(when-not false (+ 1 1)) => 2
(cond false 1 nil 2 :else 3) => 3
(cond (> 1 2) :a (> 3 2) :b) => :b
(cond false 1) => nil
(cond nil 1 nil 2 nil 3 nil 4 nil 5 true 6) => 6
(map (fn [x] (cond (= x 1) :a (= x 2) :b (= x 3) :c (= x 4) :d (= x 5) :e)) [1 3 5 7]) => [:a :c :e nil]
(and) => true
(and 1 nil 2) => nil
(and 1 2) => 2
(and 1 2 3 4 5 6) => 6
(and 1 false (throw "never")) => false
(or) => nil
(or nil false) => false
(or nil 2 (throw "never")) => 2
(or nil nil nil nil nil 6) => 6
(do) => nil
(do 1 2 3) => 3
(do (memory/put :a 1) memory/a) => 1
(time (+ 1 2)) => 3
(time) => nil
(time 1 2) => 2
(comment anything goes) => nil
(comment) => nil
[(comment 1) 2] => [nil 2]
(ns my.app (:require [clojure.string :as str])) 5 => 5
(ns a) => nil
(do (ns a) 1) => 1
(require '[clojure.set :as set]) (set/union #{1} #{2}) => #{1 2}
(require) => nil
(do (require 'x) 1) => 1
(use 'x) => nil
(use) => nil
(do (use 'x) 1) => 1
(import java.util.Date) => nil
(import) => nil
(do (import X) 1) => 1
(declare f) (defn g [] (f)) (defn f [] 7) (g) => 7
(declare) => nil
(do (declare f) 1) => 1
(println "nothing is printed" (memory/put :a 1)) memory/a => 1
(println) => nil
(println 1 2) => nil
(print 1) => nil
(print) => nil
[(print 1)] => [nil]
(prn 1) => nil
(prn) => nil
[(prn 1)] => [nil]
(pr 1) => nil
(pr) => nil
[(pr 1)] => [nil]
(tap> 1) => nil
(tap>) => nil
[(tap> 1)] => [nil]
(quote (1 2 :a "s" {:k [1]})) => [1 2 :a "s" {:k [1]}]
'(1 2) => [1 2]
(quote 5) => 5
(quote #{1}) => #{1}
(if) !! analysis_error 1:1 if needs a test and one or two branches, got 0 forms
(if 1 2 3 4) !! analysis_error 1:1 if needs a test
(when true) => nil
(when-not false) => nil
(when (+ nil 1)) !! eval_error 1:7 expects numbers
(when) !! analysis_error 1:1 when needs a test
(cond) => nil
(cond true) !! analysis_error 1:1 cond needs pairs of test and value, got 1 forms
(quote) !! analysis_error 1:1 quote needs one form
'name !! analysis_error 1:2 names are not values here
() !! analysis_error 1:1 () calls nothing
(map and [1]) !! analysis_error 1:6 and is a form, not a function
